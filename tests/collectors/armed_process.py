"""An EMULATION of a rank armed by TORCH_NCCL_DEBUG_INFO_PIPE_FILE: it makes the FIFO, looks into it, and
writes a dump file, as torch's heartbeat monitor does. No torch, no NCCL; the pickle is made up."""

ARMED = r"""
import os, pickle, sys, time
prefix, rank, how = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], os.environ["RANK"], sys.argv[1]
name = f"{prefix}{rank}.pipe"
if how == "file":
    open(name, "w").close()
elif how != "nothing":
    os.mkfifo(name)
held = os.open(name, os.O_RDONLY | os.O_NONBLOCK) if how not in ("nothing", "unread") else None
print("ready", flush=True)
path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank
asked = 0
while how != "file" and held is not None:
    if os.read(held, 128):
        asked += 1
        data = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [asked]}, 2)
        if how == "mute":
            continue
        with open(path, "wb") as file:
            file.write(data[:9]); file.flush()
            if how == "cut":
                time.sleep(60)
            time.sleep(0.15)
            file.write(data[9:])
    time.sleep(0.05)
time.sleep(60)
"""
