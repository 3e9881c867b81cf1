#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of fuzz_elf_image and fuzz_live_context again, into tests/fuzz/corpus."""
import pathlib
import struct
import subprocess
import tempfile

CORPUS = pathlib.Path(__file__).parent / "corpus"

# A provider in miniature: a table of functions handed to verbs_set_ops(), as rdma-core v35 to v58
# lay it out (poll_cq, post_recv and post_send from entry 53 on).
PROVIDER = """
extern void verbs_set_ops(void *context, const void *ops);
static int poll(int *cq, int n, int *wc) { for (int i = 0; i < n; ++i) wc[i] = cq[i]; return n; }
static int post(int *qp) { return ++*qp; }
static const void *const ops[56] = {[53] = poll, [54] = post, [55] = post};
int provider_open(void *context) { verbs_set_ops(context, ops); return 0; }
"""


def make_provider(name, *flags):
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory) / "provider.c"
        source.write_text(PROVIDER)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", "-nostdlib", "-Wl,-z,noseparate-code",
             "-Wl,--build-id", *flags, "-o", CORPUS / "elf_image" / name, source], check=True)


def make_memory(name, writes):
    data = b"".join(struct.pack("<HBQ", *write) for write in writes)
    (CORPUS / "live_context" / name).write_bytes(data)


make_provider("stripped.so", "-s")
make_provider("landing_pads_and_packed_relocations.so", "-s", "-fcf-protection",
              "-Wl,-z,pack-relative-relocs")
make_provider("with_symbols.so")
# A second CQ with a channel that is none; the QP's queue turned into its own context.
make_memory("second_cq", [(0x3800, 1, 0x400), (0x3808, 1, 0x3900), (0x3818, 0, 0xff00000001)])
make_memory("looped_pointers", [(0x3018, 1, 0x400), (0x2000, 1, 0x2000), (0x540, 3, 0)])
