"""A network that does in another process what a variable of the environment says: as a runtime that fails would."""

import os
import signal
import time

import torch

VARIABLE = "MISBEHAVE"


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        how = os.environ.get(VARIABLE, "")
        if how == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "exit":
            os._exit(0)
        elif how == "hang":
            time.sleep(600)
        elif how == "print":
            os.write(1, b"hello\n")
        answer = torch.relu(self.layer(x))
        return answer + 1 if how == "differ" else answer
