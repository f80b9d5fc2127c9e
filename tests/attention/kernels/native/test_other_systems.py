"""The native core on other systems than this one: compiled for them, and run where something here can run it."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CMAKE = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
MINGW = "x86_64-w64-mingw32-g++-posix"
ARM = "aarch64-linux-gnu-g++"
# The compiler, what CMake is told, and what runs the result.
SYSTEMS = {
    "Linux on arm64": (
        ARM,
        ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"],
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    ),
    "Windows": (MINGW, ["-DCMAKE_SYSTEM_NAME=Windows", "-DCMAKE_SYSTEM_PROCESSOR=AMD64"], ["wine"]),
}
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
LEVELS = {
    "aarch64": {"baseline": (16, [])},
    "x86_64": {
        "baseline": (16, []),
        "avx2": (32, AVX2),
        "avx512": (64, [*AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq"]),
    },
}
# The first words of a Mach-O file for 64 bits, the processors' numbers, and the kind of a dynamic library (mach-o/loader.h, mach/machine.h).
MAGIC, PROCESSORS, DYNAMIC_LIBRARY = 0xFEEDFACF, {"aarch64": 0x0100000C, "x86_64": 0x01000007}, 6


def run(*command):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_kernels_agree_with_plain_loops(system, tmp_path):
    compiler, options, runner = SYSTEMS[system]
    for tool in (compiler, *runner[:1], "cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}; CONTRIBUTING.md names Debian's packages")
    build = tmp_path / "build"
    plain = ["-DOVERT_CHECK=ON", "-DOVERT_PYTHON=OFF", "-DOVERT_OPTIMIZATION=-O1", f"-DCMAKE_CXX_COMPILER={compiler}"]
    run("cmake", "-S", ".", "-B", build, "-G", "Ninja", *plain, *options)
    run("cmake", "--build", build)
    [program] = [path for path in (build / "check", build / "check.exe") if path.exists()]
    lines = run(*runner, program).splitlines()
    assert lines
    assert all(re.fullmatch(r"\w+: \d+ comparisons, 0 differ", line.strip()) for line in lines), lines


def files(name):
    """The files of a list in CMakeLists.txt."""
    return re.search(rf"set\({name}\s+([^)]+)\)", CMAKE)[1].split()


@pytest.mark.slow
@pytest.mark.parametrize("processor", LEVELS)
def test_the_module_compiles_and_links_for_macos(processor, tmp_path):
    zig = Path(pytest.importorskip("ziglang", reason="needs clang for macOS: pip install ziglang").__file__).with_name("zig")
    nanobind = Path(pytest.importorskip("nanobind").__file__).parent
    compiler = [zig, "c++", "-target", f"{processor}-macos"]
    plain = [*compiler, "-c", "-O1", "-std=c++17", "-Inative", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden"]
    objects = []

    def compiled(file, *options):
        objects.append(tmp_path / f"{len(objects)}.o")
        run(*plain, *options, file, "-o", objects[-1])

    for level, (size, options) in LEVELS[processor].items():
        for file in files("KERNEL_FILES"):
            compiled(file, f"-DOVERT_LEVEL={level}", f"-DOVERT_BYTES={size}", *options)
    for file in files("COMMON_FILES"):
        compiled(file, *(f"-DOVERT_HAS_{level}" for level in LEVELS[processor]))
    headers = [sysconfig.get_paths()["include"], nanobind / "include", nanobind / "ext" / "robin_map" / "include"]
    for file in (*files("BINDING_FILES"), nanobind / "src" / "nb_combined.cpp"):
        compiled(file, *(f"-I{folder}" for folder in headers))
    run(*compiler, "-shared", "-undefined", "dynamic_lookup", *objects, "-o", tmp_path / "_native.so")
    words = memoryview((tmp_path / "_native.so").read_bytes()[:16]).cast("I")
    assert (words[0], words[1], words[3]) == (MAGIC, PROCESSORS[processor], DYNAMIC_LIBRARY)
    assert b"PyInit__native" in (tmp_path / "_native.so").read_bytes()
