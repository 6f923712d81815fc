"""What each of several jobs at once gets of a machine: threads, a GPU of its own, and locks that other machines can see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agt.store import _apart
from agt_cli.configuration import compose_with_hydra
from agt_cli.process import Share, visible_gpus

TAKES = "import sys; from agt_cli.process import take_gpu; print(take_gpu(['7', '8'], print), flush=True); sys.stdin.read()"


def test_a_killed_jobs_gpu_is_free_again(tmp_path: Path) -> None:
    given = {"env": {**os.environ, "TMPDIR": str(tmp_path)}, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    jobs = [subprocess.Popen([sys.executable, "-c", TAKES], text=True, **given) for _ in range(2)]  # type: ignore[call-overload]
    try:
        first, second = (job.stdout.readline().strip() for job in jobs)
        jobs.append(subprocess.Popen([sys.executable, "-c", TAKES], text=True, **given))  # type: ignore[call-overload]
        waits = jobs[2].stdout.readline()
        jobs[0].kill()
        third = jobs[2].stdout.readline().strip()
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    assert {first, second} == {"7", "8"}
    assert (waits, third) == ("waits for a GPU: other jobs are at work on 7, 8\n", first)


@pytest.mark.parametrize(
    ("given", "names"), [("2,5", ("2", "5")), ("GPU-ab, 3", ("GPU-ab", "3")), ("", ()), ("1,-1,2", ("1",))]
)
def test_gpus_are_those_that_the_call_sees(monkeypatch: pytest.MonkeyPatch, given: str, names: tuple[str, ...]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible_gpus() == names


def test_threads_are_divided_unless_somebody_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [Share.of_machine(jobs).threads for jobs in (1, 3, 100)] == [8, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert Share.of_machine(2) == Share(None)
    config = {"compute": {"threads": 5, "device": "cpu"}}
    Share(2, ("0",)).apply(config, print)
    assert (config["compute"]["threads"], os.environ["OMP_NUM_THREADS"]) == (5, "3")


def test_locks_that_stay_on_one_machine_tell_nothing(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    options = (
        "nfs4 a:/ rw,local_lock=none",
        "nfs a:/ rw,nolock,local_lock=all",
        "lustre a rw,localflock",
        "ext4 /a rw,nolock",
    )
    mounts.write_text("".join(f"3{at} 2 0:{at} / /m{at} rw - {words}\n" for at, words in enumerate(options)))
    assert [_apart(os.makedev(0, at), str(mounts)) for at in range(5)] == [False, True, True, False, False]


def test_the_settings_for_slurm_are_those_that_submitit_takes() -> None:
    slurm = pytest.importorskip("submitit.slurm.slurm")
    line = ["hydra/launcher=slurm", "hydra.launcher.partition=gpu", "hydra.launcher.gpus_per_node=1"]
    config = compose_with_hydra("train", line)
    given = OmegaConf.to_container(config.hydra.launcher)
    assert isinstance(given, dict)
    assert given.pop("_target_").endswith("SlurmLauncher")
    ours = {
        key: value
        for key, value in given.items()
        if key not in ("submitit_folder", "max_num_timeout", "name", "timeout_min")
    }
    ours |= {"mem": f"{ours.pop('mem_gb')}GB", "ntasks_per_node": ours.pop("tasks_per_node"), "time": given["timeout_min"]}
    batch = slurm._make_sbatch_string("agt", "logs", job_name="train", **ours)
    for words in ("partition=gpu", "gpus-per-node=1", "signal=USR2@120", "time=240", "cpus-per-task=4", "mem=16GB"):
        assert f"#SBATCH --{words}\n" in batch
