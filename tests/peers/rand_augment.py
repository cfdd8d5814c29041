"""Golden numbers of RandAugment's operations on values, by Pillow: prints shared/src/data/preparation/rand_augment/golden.rs.

usage: python3 tests/peers/rand_augment.py        (needs Pillow)
"""

from PIL import Image, ImageEnhance, ImageOps

HEIGHT, WIDTH = 6, 5


def picture():
    levels = [(at * at * 7 + at * 31) % 256 for at in range(3 * HEIGHT * WIDTH)]
    planes = [levels[channel * HEIGHT * WIDTH :][: HEIGHT * WIDTH] for channel in range(3)]
    return Image.merge("RGB", [plane_of(plane) for plane in planes])


def plane_of(levels):
    plane = Image.new("L", (WIDTH, HEIGHT))
    plane.putdata(levels)
    return plane


def scaled(enhancer):
    return lambda image, strength: enhancer(image).enhance(1 + 0.9 * strength)


OPERATIONS = [
    ("Autocontrast", 0.0, lambda image, _: ImageOps.autocontrast(image)),
    ("Solarise", 0.5, lambda image, strength: ImageOps.solarize(image, 255 * (1 - strength))),
    ("Posterise", 0.7, lambda image, strength: ImageOps.posterize(image, 8 - round(4 * strength))),
    ("Colour", -0.8, scaled(ImageEnhance.Color)),
    ("Contrast", 0.6, scaled(ImageEnhance.Contrast)),
    ("Brightness", -0.5, scaled(ImageEnhance.Brightness)),
    ("Sharpness", 0.9, scaled(ImageEnhance.Sharpness)),
    ("Sharpness", -0.9, scaled(ImageEnhance.Sharpness)),
]


def main():
    print("//! What Pillow makes of the picture of the tests: printed by `tests/peers/rand_augment.py`.\n")
    print("use super::Operation;\n")
    print("/// Operation, strength, and the levels of red, green and blue.")
    print("#[rustfmt::skip]")
    print("pub(super) const PILLOW: &[(Operation, f32, &[u32])] = &[")
    for name, strength, operation in OPERATIONS:
        planes = operation(picture(), strength).split()
        levels = [level for plane in planes for level in plane.tobytes()]
        print(f"    (Operation::{name}, {strength}, &[")
        for row in range(0, len(levels), 30):
            print("        " + ", ".join(map(str, levels[row : row + 30])) + ",")
        print("    ]),")
    print("];")


if __name__ == "__main__":
    main()
