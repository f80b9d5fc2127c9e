"""Models whose parameters are spread over processes, fully sharded, tensor-parallel and sequence-parallel: each records its share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sharded_models_program.py")


@pytest.mark.slow
def test_each_process_records_its_heads_and_says_what_it_cannot(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, str(rank), tmp_path], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=600)[1].decode()[-3000:] for process in processes]
    assert sorted(path.name for path in tmp_path.glob("*.done")) == ["0.done", "1.done"], errors
