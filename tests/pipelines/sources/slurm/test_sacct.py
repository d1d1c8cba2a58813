"""sacct output: fields, records that lie about their delimiter, what is no sacct output."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.slurm.sacct import parse_sacct, stream_sacct
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 1, 6, tzinfo=UTC)
HEADER = "JobID|JobName|State|ExitCode|Start|End|NodeList|AllocTRES"
ROW = "7|train|COMPLETED|0:0|2026-01-05T00:00:00|2026-01-05T01:00:00|n[1-2]|cpu=9,gres/gpu=8"


def parse(*lines, zone="UTC", **options):
    text = "\n".join(lines) + "\n"
    return parse_sacct(text, origin="j.txt", time_zone=zone, ingested_at=NOW, **options)


def rows(result, *columns):
    return result.table("raw/job_log").select(columns).rows()


def rules(result):
    return dict(result.quarantine.select("rule", "count").rows())


def fields(**values):
    """A record of the usual header with some fields changed."""
    return "|".join(
        {**dict(zip(HEADER.split("|"), ROW.split("|"), strict=True)), **values}.values()
    )


def test_a_record_becomes_a_row_that_holds_the_contract():
    result = parse(HEADER, ROW)
    columns = ("job_id", "step", "job_name", "state", "exit_code", "exit_signal", "n_gpus")
    assert rows(result, *columns) == [("7", None, "train", "COMPLETED", 0, 0, 8)]
    assert rows(result, "submit", "start", "end", "nodes", "user") == [
        (
            None,
            datetime(2026, 1, 5, tzinfo=UTC),
            datetime(2026, 1, 5, 1, tzinfo=UTC),
            ["n1", "n2"],
            None,
        )
    ]
    assert RAW_JOB_LOG.enforce(result.table("raw/job_log")).rejects.is_empty()
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(2, 1, 1)]


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        ("123", "123", None),
        ("123.batch", "123", "batch"),
        ("123.extern", "123", "extern"),
        ("123.0", "123", "0"),
        ("123_4.0", "123_4", "0"),
        ("123_[4-7%2]", "123_[4-7%2]", None),
        ("123_[1,3,9-11]", "123_[1,3,9-11]", None),
        ("123+1.batch", "123+1", "batch"),
    ],
)
def test_job_ids_are_cut_into_job_and_step(text, job, step):
    assert rows(parse(HEADER, fields(JobID=text)), "job_id", "step") == [(job, step)]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1185300516", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
        ("NODE_FAIL", "NODE_FAIL"),
        ("RUNNING", "RUNNING"),
    ],
)
def test_states_come_without_their_detail(text, state):
    assert rows(parse(HEADER, fields(State=text)), "state") == [(state,)]


@pytest.mark.parametrize(
    ("tres", "n_gpus"),
    [
        ("gres/gpu=8", 8),
        ("billing=1,cpu=9,gres/gpu:h100=8,mem=1G", 8),
        ("gres/gpu=8,gres/gpu:h100=8", 8),
        ("gres/gpu:a100=4,gres/gpu:h100=3", 7),
        ("gres:gpu:8(IDX:0-7)", 8),
        ("gpu:h100:8(IDX:0-7)", 8),
        ("cpu=9,mem=1G", 0),
        ("gres/gpumem=80G,gres/gpuutil=50", 0),
        ("", None),
    ],
)
def test_gpus_are_counted_in_all_spellings(tres, n_gpus):
    assert rows(parse(HEADER, fields(AllocTRES=tres)), "n_gpus") == [(n_gpus,)]


def test_what_was_asked_for_counts_only_where_what_was_given_has_no_column():
    both = parse("JobID|State|AllocTRES|ReqTRES", "1|PENDING||gres/gpu=8")
    asked = parse("JobID|State|ReqTRES", "1|PENDING|gres/gpu=8")
    assert rows(both, "n_gpus") + rows(asked, "n_gpus") == [(None,), (8,)]


@pytest.mark.parametrize("word", ["Unknown", "None", "INVALID", "", "N/A"])
def test_times_that_are_not_known_are_null(word):
    assert rows(parse(HEADER, fields(Start=word, End=word)), "start", "end") == [(None, None)]


@pytest.mark.parametrize(
    ("word", "utc"),
    [
        ("2026-01-05T00:30:00", datetime(2026, 1, 4, 23, 30, tzinfo=UTC)),
        ("2025-10-26T02:30:00", datetime(2025, 10, 26, 1, 30, tzinfo=UTC)),  # came twice
        ("2025-03-30T02:30:00", datetime(2025, 3, 30, 1, 30, tzinfo=UTC)),  # never came
        ("2026-01-05T00:30:00+0530", datetime(2026, 1, 4, 19, 0, tzinfo=UTC)),
        ("1767225600", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_in_the_zone_of_the_accounting_machine(word, utc):
    assert rows(parse(HEADER, fields(Start=word), zone="Europe/Berlin"), "start") == [(utc,)]


@pytest.mark.parametrize(
    ("times", "filed_at"),
    [
        ("2026-01-01T00:00:00|2026-01-02T00:00:00|2026-01-03T00:00:00", 1),
        ("Unknown|2026-01-02T00:00:00|2026-01-03T00:00:00", 2),
        ("Unknown|None|2026-01-03T00:00:00", 3),
    ],
)
def test_a_record_is_filed_under_the_first_time_it_has(times, filed_at):
    result = parse("JobID|State|Submit|Start|End", f"1|FAILED|{times}")
    assert rows(result, "filed_at") == [(datetime(2026, 1, filed_at, tzinfo=UTC),)]


@pytest.mark.parametrize("word", ["None assigned", "", "Unknown"])
def test_a_job_without_nodes_has_unknown_nodes(word):
    assert rows(parse(HEADER, fields(NodeList=word)), "nodes") == [(None,)]


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"JobID": "seven"}, "JobID is not a job id"),
        ({"State": "SLEEPY"}, "State is not a state of a Slurm job"),
        ({"State": ""}, "State is not a state of a Slurm job"),
        ({"ExitCode": "fine"}, "ExitCode is not code:signal"),
        ({"Start": "yesterday"}, "Start is not a time"),
        ({"End": "2026-02-30T00:00:00"}, "End is not a time"),
        ({"NodeList": "n[1-"}, "NodeList is not a hostlist"),
        ({"AllocTRES": "gres/gpu=999999999"}, "more than 10000000 GPUs"),
    ],
)
def test_a_record_that_is_refused_says_why(changed, rule):
    result = parse(HEADER, fields(**changed), ROW)
    assert rules(result) == {rule: 1}
    assert rows(result, "job_id") == [("7",)]


def test_a_job_name_may_hold_the_delimiter():
    result = parse(HEADER, fields(JobName="a | grep b || c"), ROW)
    assert rows(result, "job_name", "n_gpus") == [("a | grep b || c", 8), ("train", 8)]


def test_a_job_name_may_hold_line_breaks_and_the_delimiter():
    result = parse(HEADER, ROW, fields(JobName="a\nb | c\nd"), ROW)
    assert rows(result, "job_name") == [("train",), ("a\nb | c\nd",), ("train",)]
    assert result.reads.select("n_read", "n_parsed").rows() == [(6, 5)]


def test_two_fields_that_may_both_hold_the_delimiter_are_not_guessed_at():
    header = "JobID|JobName|Comment|State"
    assert rules(parse(header, "1|a|b|c|COMPLETED")) == {
        "delimiter inside a field, and which field cannot be told (the header has 4)": 1
    }


def test_a_job_name_with_the_delimiter_is_told_from_what_a_site_names():
    header = "JobID|JobName|User|Account|Partition|State|Reason"
    result = parse(header, "1|a | grep b|ann|research|gpu|FAILED|None")
    assert rows(result, "job_name", "user", "partition") == [("a | grep b", "ann", "gpu")]


def test_a_name_that_stands_in_the_submit_line_too_is_repaired_in_both():
    header = "JobID|JobName|State|NodeList|SubmitLine"
    result = parse(header, "1|a | b|FAILED|n1|sbatch -J 'a | b' || true")
    assert rows(result, "job_name", "state", "nodes") == [("a | b", "FAILED", ["n1"])]


def test_readings_that_differ_in_unused_columns_only_are_the_same():
    result = parse("JobID|State|Comment|SubmitLine", "1|COMPLETED|a|b|c")
    assert rows(result, "job_id", "state") == [("1", "COMPLETED")]


def test_a_torn_record_does_not_swallow_the_next_one():
    result = parse(HEADER, "6|torn|COMPL", ROW)
    assert rules(result) == {"too few fields (the header has 8)": 1}
    assert rows(result, "job_id") == [("7",)]


def test_torn_records_that_only_add_up_to_the_right_width_are_not_joined():
    torn = fields(JobID="8").split("|")
    result = parse(HEADER, "|".join(torn[:3]), "|".join(torn[:6]), ROW)
    assert rows(result, "job_id") == [("7",)]
    assert rules(result) == {
        "broken over several lines in a way that cannot be mended (the header has 8)": 1,
        "too few fields (the header has 8)": 1,
    }


@pytest.mark.parametrize("delimiter", ["|", "|#", ";", "^"])
def test_the_header_tells_the_delimiter(delimiter):
    lines = (line.replace("|", delimiter) for line in (HEADER, ROW))
    assert rows(parse(*lines), "job_id", "n_gpus") == [("7", 8)]


def test_parsable_output_closes_every_record_with_a_delimiter():
    assert rows(parse(HEADER + "|", ROW + "|"), "job_id", "n_gpus") == [("7", 8)]


def test_output_without_a_header_needs_its_columns():
    with pytest.raises(SourceError, match=r"'JobID' is missing.*Found: 7, train, .*columns"):
        parse(ROW)
    assert rows(parse(ROW, columns=HEADER.split("|")), "n_gpus") == [(8,)]
    with pytest.raises(SourceError, match="column 'State' is missing"):
        parse(ROW, columns=["JobID"])


def test_comments_before_the_header_and_repeated_headers_are_skipped():
    result = parse("# sacct -P", "", HEADER, ROW, HEADER, ROW)
    assert result.reads.select("n_parsed", "n_skipped", "n_quarantined").rows() == [(2, 4, 0)]


def test_column_names_are_found_in_any_case():
    assert rows(parse("jobid|STATE", "1|FAILED"), "job_id", "state") == [("1", "FAILED")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Job_ID|State\n1|FAILED\n", r"'JobID' is missing.*Found: Job_ID, State.*Close.*Job_ID"),
        ("JobID|Status\n1|FAILED\n", r"'State' is missing.*Found: JobID, Status.*Close.*Status"),
        ('{"jobs": []}\n', "this is no output of sacct"),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "this is no output of sacct"),
        ("NodeName=n1 State=IDLE+DRAIN\n", "this is no output of sacct"),
        ("", r"Found: \(nothing\)"),
    ],
)
def test_what_is_no_sacct_output_is_one_clear_error(text, message):
    with pytest.raises(SourceError, match=rf"j\.txt: .*{message}"):
        parse_sacct(text, origin="j.txt", time_zone="UTC", ingested_at=NOW)


def test_bad_bytes_are_replaced(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_bytes(
        HEADER.encode() + b"\r\n" + fields(JobName="@").encode().replace(b"@", b"\xff")
    )
    result = read_all(stream_sacct, [path], time_zone="UTC", ingested_at=NOW)
    assert rows(result, "job_name") == [("\ufffd",)]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_job_name_comes_back_or_is_quarantined(name):
    result = parse(HEADER, ROW, fields(JobName=name), ROW)
    names = [found for (found,) in rows(result, "job_name")]
    if result.quarantine.is_empty():
        # blank lines inside a name, and a carriage return at the end of a line, are not kept
        *broken, last = name.split("\n")
        kept = [*(line.removesuffix("\r") for line in broken), last]
        mended = kept[:1] + [line for line in kept[1:-1] if line.strip()] + kept[1:][-1:]
        assert names == ["train", "\n".join(mended) or None, "train"]
    else:
        assert names == ["train", "train"]
