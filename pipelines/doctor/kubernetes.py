"""What an account may do in a Kubernetes cluster, by asking the cluster itself.

One SelfSubjectAccessReview for each verb: nothing else is read, and nothing is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from pipelines.doctor.probe import Finding, beside_header, joined
from remediation.actuators.exchange import Answer
from remediation.actuators.kubernetes_api import KubernetesApi

_REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True)
class Right:
    """A verb on a kind of object.

    Attributes:
        verb: list, get, patch, create.
        resource: Plural name, with a subresource such as `pods/eviction`.
        group: API group; empty: the core's.
        is_namespaced: Whether it lives in a namespace.
        is_needed: Whether nothing can be done without it.
    """

    verb: str
    resource: str
    group: str = ""
    is_namespaced: bool = False
    is_needed: bool = True

    def words(self) -> str:
        """It as a person says it.

        >>> Right("list", "pods", is_namespaced=True).words()
        'list pods'
        """
        return f"{self.verb} {self.resource}"


READS: Final = (
    Right("list", "nodes"),
    Right("list", "pods", is_namespaced=True),
    Right("list", "events", is_namespaced=True, is_needed=False),
    Right("list", "jobs", "batch", is_namespaced=True, is_needed=False),
)
"""What ingest reads; without the last two it knows less."""

OBSERVES: Final = (Right("get", "nodes"), Right("list", "nodes"), Right("list", "pods"))
"""What the hook needs for a dry run, as its roles in deploy/kubernetes say."""

ACTS: Final = (
    *OBSERVES,
    Right("patch", "nodes"),
    Right("patch", "pods"),
    Right("create", "pods/eviction"),
)
"""What it needs to act."""


def missing_rights(
    api: KubernetesApi, rights: Sequence[Right], *, namespaces: Sequence[str] = ()
) -> Finding:
    """Whether an account has rights.

    Args:
        api: The cluster, with the account's credentials.
        rights: What it should be allowed.
        namespaces: Where, for what lives in namespaces; empty: everywhere.

    Raises:
        SourceError: The cluster does not answer.
    """
    wanting: list[str] = []
    clock, is_needed = None, False
    for right in rights:
        where = namespaces if namespaces and right.is_namespaced else ("",)
        for namespace in where:
            answer = api.ask("POST", _REVIEW, params={}, body=_review(right, namespace))
            if not answer.is_fine:
                return _refused(api, answer)
            clock = beside_header(answer.date, datetime.now(UTC))
            if not orjson.loads(answer.body).get("status", {}).get("allowed"):
                wanting.append(right.words() + (f" in {namespace}" if namespace else ""))
                is_needed = is_needed or right.is_needed
    if not wanting:
        named = ", ".join(one.words() for one in rights)
        return joined(f"{api.address} answers, and allows {named}", clock)
    lacks = Finding(
        "FAIL" if is_needed else "warn",
        f"this account may not {', '.join(wanting)}",
        "Bind it a role that may: deploy/kubernetes/README.md.",
    )
    return joined(f"{api.address} answers", clock, lacks)


def _review(right: Right, namespace: str) -> dict[str, Any]:
    """The question whether this account may do it."""
    resource, _, sub = right.resource.partition("/")
    asked = {
        "verb": right.verb,
        "resource": resource,
        "subresource": sub,
        "group": right.group,
        "namespace": namespace,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }


def _refused(api: KubernetesApi, answer: Answer) -> Finding:
    said = " ".join(answer.body.decode(errors="replace").split())[:200]
    return Finding(
        "FAIL",
        f"{api.address} answers HTTP {answer.status}: {said}",
        "Correct the credentials of the kubeconfig, or the pod's service account.",
    )
