"""The rules for job output: the class of a line in any wording, and what a rule file may say."""

# ruff: noqa: E501 - lines of job output are as long as they are

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SettingsError
from features.vocabulary import JOB_CAUSES
from pipelines.sources.jobs.rules import SHIPPED_RULES, load_job_rules

RULES = load_job_rules()

LINES = [
    # NCCL watchdog, old to new
    ("collective_timeout", "[E ProcessGroupNCCL.cpp:587] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803126 milliseconds before timing out."),
    ("collective_timeout", "[E ProcessGroupNCCL.cpp:341] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted data."),
    ("collective_timeout", "[E ProcessGroupNCCL.cpp:461] To avoid data inconsistency, we are taking the entire process down."),
    ("collective_timeout", "[PG 3 Rank 1] Timeout at NCCL work: 71, last enqueued NCCL work: 74, last completed NCCL work: 70."),
    ("collective_timeout", "[rank4]:[F1016 03:31:38.9 ProcessGroupNCCL.cpp:1360] [PG 0 Rank 4] [PG 0 Rank 4] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."),
    ("collective_timeout", "[rank0]:[E1 1 ProcessGroupNCCL.cpp:1] [PG 0 Rank 0] Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info."),
    ("collective_timeout", "RuntimeError: [/opt/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
    ("collective_timeout", "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv: timed out"),
    ("rendezvous_timeout", "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (n1, 29500)."),
    ("rendezvous_timeout", "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0"),
    # the watchdog reports another error: that one counts
    ("gpu_memory_ecc", "[E ProcessGroupNCCL.cpp:1182] [Rank 5] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"),
    ("nvlink_fabric", "what():  CUDA error: uncorrectable NVLink error detected during the execution"),
    ("nvlink_fabric", "[2025-04-06 22:31:56] n1:34:34 [0] transport/nvls.cc:598 NCCL WARN Cuda failure 1 'invalid argument'"),
    ("nvlink_fabric", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401"),
    ("nvlink_fabric", "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"),
    ("nvlink_fabric", "RuntimeError: CUDA error: system not yet initialized"),
    ("gpu_memory_ecc", "jax.errors.XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error"),
    ("gpu_unavailable", "RuntimeError: CUDA error: no CUDA-capable device is detected"),
    ("gpu_unavailable", "RuntimeError: No CUDA GPUs are available"),
    ("gpu_driver", "NVML: Driver/library version mismatch"),
    ("gpu_driver", "Failed to initialize NVML: Unknown Error"),
    ("cuda_illegal_access", "[rank2]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("cuda_illegal_access", "RuntimeError: CUDA error: misaligned address"),
    ("cuda_launch_failure", "RuntimeError: cuda runtime error (4) : unspecified launch failure at /b/x.cu:66"),
    ("device_assert", "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [3,0,0], thread: [96,0,0] Assertion `srcIndex < srcSelectDimSize` failed."),
    ("cuda_library", "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    ("cuda_library", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ("cuda_error", "HPL ERROR: CUDART Error: cudaMemcpyAsync() = 999 (unknown error) on n1"),
    # memory of the GPU, of the host, shared
    ("gpu_oom", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79 GiB total capacity)"),
    ("gpu_oom", "RuntimeError: CUDA error: out of memory"),
    ("gpu_oom", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ("gpu_oom", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes."),
    ("gpu_oom", "n1:3:4 [0] include/alloc.h:99 NCCL WARN Cuda failure 2 'out of memory'"),
    ("host_oom", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=815.batch cgroup."),
    ("host_oom", "srun: error: gpu001: task 0: Out Of Memory"),
    ("host_oom", "RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed."),
    ("host_oom", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 9.31 GiB for an array with shape (9,)"),
    ("host_oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
    ("host_oom", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("host_oom", "srun: error: gpu017: task 3: Exited with exit code 137"),
    ("host_oom", "  exitcode  : -9 (pid: 4711)"),
    ("host_oom", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
    ("shared_memory", "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode"),
    ("shared_memory", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."),
    # files
    ("storage_full", "OSError: [Errno 28] No space left on device"),
    ("storage_quota", "OSError: [Errno 122] Disk quota exceeded: '/home/u/x'"),
    ("storage_io", "OSError: [Errno 5] Input/output error"),
    ("storage_io", "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/x'"),
    ("object_store", "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation: Please reduce your request rate."),
    ("checkpoint_io", "RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed"),
    ("checkpoint_io", "ERROR: failed to save checkpoint to /ckpt/iter_100"),
    # numbers
    ("nan_loss", "Loss is nan, stopping training"),
    ("nan_loss", "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication collective."),
    ("nan_loss", "RuntimeError: found Inf in local forward loss calculation"),
    ("nan_loss", "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
    ("nan_loss", "{'loss': nan, 'learning_rate': 1e-05, 'epoch': 0.1}"),
    ("nan_loss", " iteration 100/ 500 | lm loss: NaN | loss scale: 1.0 |"),
    # network
    ("network_ib", "n1:5:9 [2] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with status=12 opcode=0 len=0 vendor err 129 (Recv)"),
    ("network_ib", "n1:5:9 [2] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error"),
    ("network_socket", "n1:5:9 [2] misc/socket.cc:50 NCCL WARN socketProgress: Connect to 10.0.0.1<5> failed : No route to host"),
    ("nccl_error", "RuntimeError: NCCL error in: ../x.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3"),
    ("nccl_error", "DistBackendError: NCCL error in: x.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO)"),
    ("gpu_driver", "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown"),
    ("nccl_misuse", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
    ("nccl_remote_closed", "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.18.1"),
    ("nccl_remote_closed", "n1:5:9 [2] misc/socket.cc:749 NCCL WARN socketProgress: Connection closed by remote peer n2<4>"),
    # scheduler
    ("time_limit", "slurmstepd: error: *** STEP 815.0 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***"),
    ("preempted", "slurmstepd: error: *** JOB 815 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***"),
    ("node_failure", "slurmstepd: error: *** JOB 815 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"),
    ("node_failure", "srun: error: Node failure on n1"),
    ("cancelled", "slurmstepd: error: *** JOB 815 ON n1 CANCELLED AT 2026-01-05T10:00:00 ***"),
    # processes
    ("segfault", "srun: error: n1: task 3: Segmentation fault (core dumped)"),
    ("segfault", "Fatal Python error: Segmentation fault"),
    ("mpi_abort", "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"),
    ("mpi_abort", "PRTE has lost communication with a remote daemon."),
    ("mpi_abort", "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"),
    ("elastic_agent", "E1016 03:31:38.9 1 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 0 (pid: 88) of binary: /usr/bin/python"),
    ("elastic_agent", "subprocess.CalledProcessError: Command '['python', 'x.py']' returned non-zero exit status 1."),
    ("sigterm", "srun: error: n1: task 3: Terminated"),
    ("port_in_use", "OSError: [Errno 98] Address already in use"),
    ("process_exit", "srun: error: n1: tasks 0-7: Exited with exit code 1"),
]  # fmt: skip

EXCEPTIONS = [
    ("import_error", "ImportError: libcudart.so.12: cannot open shared object file: No such file"),
    ("assertion_error", "AssertionError"),
    ("missing_file", "FileNotFoundError: [Errno 2] No such file or directory: 'x'"),
    ("python_exception", "KeyError: 'input_ids'"),
    ("python_exception", "mylib.Oops: bad"),
    ("interrupted", "KeyboardInterrupt"),
    ("peer_process", "BrokenPipeError: [Errno 32] Broken pipe"),
    ("host_oom", "MemoryError"),
    ("storage_full", "OSError: [Errno 28] No space left on device"),
]

NOTHING = [
    "step 100 loss 1.23 grad_norm 0.4 error_rate 0.01",
    "NCCL INFO Channel 00/02 : 0 1 2 3",
    "I1002 15:18:51.0 1 ProcessGroupNCCL.cpp:530] [Rank 1] NCCL watchdog thread terminated normally",
    "/opt/lib/x.py:12: UserWarning: CUDA out of memory is handled by retrying",
    "frame #1: c10::cuda::CUDACachingAllocator::raw_delete(void*) + 0x1 (0x7f in libc10_cuda.so)",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "INFO: banana inference finished, 0.3 s",
    "Saving checkpoint to /ckpt/iter_100 done",
]


@pytest.mark.parametrize(("fault_class", "line"), LINES, ids=lambda value: value[:40])
def test_a_line_has_the_class_of_its_fault(fault_class, line):
    assert RULES.class_of(line).rule.fault_class == fault_class


@pytest.mark.parametrize(("fault_class", "line"), EXCEPTIONS, ids=lambda value: value[:40])
def test_the_last_line_of_a_traceback_decides(fault_class, line):
    assert RULES.class_of(line, is_exception=True).rule.fault_class == fault_class


@pytest.mark.parametrize("line", NOTHING, ids=lambda value: value[:40])
def test_a_line_about_nothing_has_no_class(line):
    hit = RULES.class_of(line)
    assert hit is None or hit.rule.role == "ignore"


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.name)
def test_every_rule_gives_an_example_that_no_earlier_rule_takes(rule):
    is_exception = rule.at == "exception"
    assert RULES.class_of(rule.example, is_exception=is_exception).rule.name == rule.name
    assert rule.cause in JOB_CAUSES


def test_groups_name_node_rank_and_job():
    hit = RULES.class_of("srun: error: gpu-a17: tasks 3-5: Segmentation fault")
    assert (hit.node, hit.rank) == ("gpu-a17", 3)
    assert RULES.class_of("error: Detected 1 oom_kill event in StepId=815.0").job == "815"


@settings(max_examples=60)
@given(st.lists(st.sampled_from([line for _, line in LINES] + NOTHING) | st.text(max_size=60)))
def test_many_lines_at_once_are_classed_like_each_alone(lines):
    lowered = [line.lower() for line in lines]
    markers = RULES.markers
    candidates = [
        {place for marker, places in markers.items() if marker in line for place in places}
        for line in lowered
    ]
    assert RULES.hits(lines, candidates) == [RULES.class_of(line) for line in lines]


def write(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = (
    "{name: a, markers: [Boom], fault_class: boom, cause: oom, priority: 5, example: it went BOOM}"
)


def test_a_sites_own_rules_replace_the_shipped_ones(tmp_path):
    rules = load_job_rules(write(tmp_path, f"rules: [{GOOD}]"))
    assert rules.class_of("xx boom").rule.fault_class == "boom"
    assert rules.version.startswith("mine@")
    assert rules.version != load_job_rules(write(tmp_path, f"rules: [{GOOD}] ")).version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [", "cannot be read"),
        ("rule: []", "expected one key, rules"),
        ("rules: []", "expected one key, rules"),
        (f"rules: [{GOOD}, {GOOD}]", "rule a is given twice"),
        (f"rules: [{GOOD.replace('oom,', 'gremlins,')}]", "none of user_code, oom"),
        (f"rules: [{GOOD.replace('[Boom]', '[]')}]", "give either markers or at: exception"),
        (f"rules: [{GOOD.replace('[Boom]', '[Bäm]')}]", "plain ASCII"),
        (f"rules: [{GOOD.replace('it went BOOM', 'silence')}]", "does not fit its own example"),
        (f"rules: [{GOOD.replace('{', '{pattern: (, ', 1)}]", "is no regular expression"),
        (
            "rules: [" + GOOD.replace("{", "{pattern: '(?P<host>x)', ", 1) + "]",
            "group host is not known",
        ),
        (f"rules: [{GOOD.replace('priority: 5, ', '')}]", "fault_class and priority are needed"),
        (f"rules: [{GOOD.replace('{', '{colour: red, ', 1)}]", "Extra inputs"),
        ("rules: [3]", "rule 1"),
    ],
)
def test_a_mistake_in_a_rule_file_is_named(tmp_path, text, message):
    with pytest.raises(SettingsError, match="mine.yaml") as caught:
        load_job_rules(write(tmp_path, text))
    assert message in str(caught.value)


def test_an_absent_rule_file_is_one_clear_error(tmp_path):
    with pytest.raises(SettingsError, match=f"like the shipped {SHIPPED_RULES.name}"):
        load_job_rules(tmp_path / "none.yaml")
