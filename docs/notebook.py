# %% [markdown]
# # A first profile in a notebook
#
# Where does a network spend its time, and what does the CPU's accelerator change? This page is a notebook in percent
# format (`docs/notebook.py`): VS Code, PyCharm and Jupyter with jupytext open it cell by cell. It needs
# `pip install "executorch-sme2-kit[export]" pandas`.
#
# A small network, defined right here:

# %%
import torch

import sme2_kit


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.body = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, image):
        features = torch.relu(self.body(torch.relu(self.stem(image))))
        return self.head(features.mean((2, 3)))


net = Net()
image = torch.randn(1, 3, 32, 32)

# %% [markdown]
# One call exports it, runs it with acceleration on and off in turns, and analyses what ran. No file has to be named:
# results go to a temporary directory, unless `out=` names one. The network in memory stays as it is. As the last line
# of a cell, a run shows its result, where the time goes, and the top operators.

# %%
run = sme2_kit.profile(net, image, dtype="fp16")
run

# %% [markdown]
# On a run of the kit's own `toy_cnn`, the picture looks like this:
#
# ![Time by operator category, with the accelerator off and on](gallery/toy_cnn/report_charts/shift.png)
#
# The same facts as a table. `ms` is the mean over typical executions, so the parts add up to the whole; `share` is the
# part of the whole.

# %%
run.operators.to_pandas()[["experiment", "operator", "category", "where", "ms", "share"]].head(8)

# %% [markdown]
# What to do next, what a flag can do first, then by predicted gain:

# %%
run.advice.to_pandas()[["experiment", "title", "gain", "next_step"]]

# %% [markdown]
# Is fp16 faster than fp32 here? Two programs are measured side by side, so that shared machine noise cancels, and the
# ratio comes with its 95 % interval.

# %%
fp32 = sme2_kit.export(net, image, dtype="fp32")
sme2_kit.compare(fp32, run.program)

# %% [markdown]
# `run.report("report.html")` writes all of it as one page to send to somebody. The [Python API](api.md) has the rest.
