"""What one would write without the trainer: the peer of `benchmarks.checkpoints`."""

import json
import os
import sys
import time

import torch


def resume(path: str) -> None:
    """The gpt of the benchmark: load, one step, print when it is done."""
    from trainer.data.dataset import DatasetInfo
    from trainer.models.gpt import build

    info = DatasetInfo("tokens", "v1", 256, (64,), 1, 1, kind="tokens", vocabulary=256, sequence_length=64)
    model = build(info, layers=4, heads=8, width=512)
    optimizer = torch.optim.AdamW(model.parameters())
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    batch = torch.randint(0, 256, (4, 65))
    logits = model(batch[:, :-1])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()
    print(time.time(), flush=True)


def recover(path: str, log: str) -> None:
    """Under torchrun: load if there is something, then steps with a torch.save a second, each step told."""
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 36, 4)
        )
    )
    optimizer = torch.optim.AdamW(model.parameters())
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    last_save = 0.0
    launcher = os.getppid()
    while os.getppid() == launcher:
        loss = torch.nn.functional.cross_entropy(model(torch.rand(64, 1, 8, 8)), torch.randint(0, 4, (64,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with open(log, "a") as file:
            file.write(json.dumps({"time": time.time(), "pid": os.getpid()}) + "\n")
        if time.monotonic() - last_save > 1:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".part")
            os.replace(path + ".part", path)
            last_save = time.monotonic()
        time.sleep(0.02)


if __name__ == "__main__":
    resume(sys.argv[2]) if sys.argv[1] == "resume" else recover(*sys.argv[2:])
