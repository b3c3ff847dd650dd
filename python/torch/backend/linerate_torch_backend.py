"""scikit-build-core's backend, after a look at whether it can build here."""
import importlib.util
import os
import sys


def _explain():
    how = "pip install --no-build-isolation ./python/torch"
    if importlib.util.find_spec("torch") is None:
        sys.exit("linerate-torch is built against the torch that it will run with, and this build "
                 f"sees none: {sys.prefix}\n"
                 f"Install torch first, and build without isolation:\n  {how}")
    if importlib.util.find_spec("scikit_build_core") is None:
        sys.exit("linerate-torch needs scikit-build-core to be built. Type:\n  pip install "
                 f"'scikit-build-core>=0.10'\n  {how}")


# Not the compiler that Python was built with, which scikit-build-core would take: that of the
# repository's build, whose objects ccache may have.
os.environ.setdefault("CXX", "c++")


def get_requires_for_build_wheel(config_settings=None):
    _explain()
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(*arguments, **options):
    _explain()
    from scikit_build_core.build import prepare_metadata_for_build_wheel as prepare
    return prepare(*arguments, **options)


def build_wheel(*arguments, **options):
    _explain()
    from scikit_build_core.build import build_wheel as build
    return build(*arguments, **options)


def build_sdist(*arguments, **options):
    _explain()
    from scikit_build_core.build import build_sdist as build
    return build(*arguments, **options)


def build_editable(*arguments, **options):
    _explain()
    from scikit_build_core.build import build_editable as build
    return build(*arguments, **options)
