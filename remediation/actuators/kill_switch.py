"""The kill switch: a file that stops every action while it exists.

Nothing else is needed for it to work: no network, no database, no scores.
"""

from remediation.site import Site


def stopped_by(site: Site) -> str | None:
    """Why automation is stopped, in words; None: it is not.

    What cannot be looked at counts as on: an absent folder or a refused look is no permission.

    Args:
        site: The site's settings.
    """
    if site.is_stopped:
        return "stopped by setting is_stopped"
    path = site.kill_switch
    if path is None:
        return None
    try:
        path.lstat()
    except FileNotFoundError:
        return None if path.parent.is_dir() else f"kill switch folder {path.parent} is absent"
    except OSError as error:
        return f"kill switch {path} cannot be looked at ({error.strerror})"
    return f"kill switch {path} is set"
