"""`python -m gateway` is the `assay` command."""

from gateway.cli import main

main()
