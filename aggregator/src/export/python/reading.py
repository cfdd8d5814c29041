def read_image(path: Path) -> np.ndarray:
    """An image as bytes of SHAPE: the centre with its ratio of sides, scaled bilinearly or by averaging."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        sys.exit("images are read with Pillow: pip install pillow")
    channels, height, width = SHAPE
    with Image.open(path) as file:
        if file.mode.startswith("I"):
            # Grey in 16 bits, of which Pillow would make white above 255.
            grey = (np.array(file).astype(np.int64) + 128) // 257
            file = Image.fromarray(grey.astype(np.uint8))
        image = file.convert("RGB")
    if image.size != (width, height):
        wide = min(max(int(image.height * width / height + 0.5), 1), image.width)
        tall = min(max(int(image.width * height / width + 0.5), 1), image.height)
        left, top = (image.width - wide) // 2, (image.height - tall) // 2
        image = image.crop((left, top, left + wide, top + tall))
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.array(image)
    if channels == 1:
        # The luma of sRGB, rounded.
        luma = pixels.astype(np.int64) @ (2126, 7152, 722)
        pixels = ((luma + 5000) // 10000).astype(np.uint8)[:, :, None]
    return pixels.transpose(2, 0, 1)


def read_table(path: Path) -> np.ndarray:
    """The rows of a CSV table with a header: the columns FEATURES, or all without TARGETS if they are there."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    if any(len(row) != len(header) for row in rows):
        raise ValueError(f"{path}: a row has another number of fields than the header, {len(header)}")
    names = [name.strip() for name in header]
    for name in FEATURES:
        if names.count(name) != 1:
            raise ValueError(f"{path}: {names.count(name)} columns are named {name}")
    kept = [names.index(name) for name in FEATURES]
    kept = kept or [column for column, name in enumerate(names) if name not in TARGETS]
    return np.array([[float(row[column]) for column in kept] for row in rows], dtype=np.float32)


def read_texts(path: Path) -> np.ndarray:
    """The texts in the column COLUMN of a CSV table, or the one of another file, as tokens."""
    if path.suffix == ".csv":
        csv.field_size_limit(1 << 30)
        with open(path, newline="", encoding="utf-8-sig") as file:
            header, *rows = [row for row in csv.reader(file) if row] or [[]]
        column = [name.strip() for name in header].index(COLUMN)
        texts = [row[column] for row in rows]
    else:
        texts = [path.read_bytes().decode()]
    return np.array([tokens_of(text) for text in texts], dtype=np.int64).reshape(-1, *SHAPE)


def tokens_of(text: str) -> list[int]:
    """The bytes of a text in UTF-8, each and 1: SHAPE of them, with 0 behind the end."""
    found = [byte + 1 for byte in text.replace("\r\n", "\n").encode()[: SHAPE[0]]]
    return found + [0] * (SHAPE[0] - len(found))


def read_text(path: Path) -> np.ndarray:
    """The last characters of a text as tokens."""
    return tokens(path.read_text(encoding="utf-8"))[-SHAPE[0] :]


def tokens(text: str) -> np.ndarray:
    """The number of each character: its place among CHARACTERS, and one number behind them for all others."""
    # What is not found is at -1, which is the last class.
    return np.array([CHARACTERS.find(character) % len(CLASSES) for character in text], dtype=np.int64)
