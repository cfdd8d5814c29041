def main() -> None:
    """Prints the PRINTED of each sample."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument(
        "samples", nargs="+", type=Path, metavar="FILE",
        help=HELP,
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="classes to print of each sample")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FILE", help="other weights")
    arguments = parser.parse_args()
    try:
        network = load(arguments.weights)
        for path in arguments.samples:
            for number, answers in enumerate(ANSWERS):
                SAID
                print(f"{path} {number}  {said}")
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")


if __name__ == "__main__":
    main()
