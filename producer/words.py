"""The shop's vocabulary. No word contains a blank, so that a description splits into its parts."""

from __future__ import annotations

SIZES = ("XS", "S", "M", "L", "XL", "2XL", "3XL")
MATERIALS = (
    "Canvas",
    "Chambray",
    "Corduroy",
    "Denim",
    "Drill",
    "Flannel",
    "Hemp",
    "Hickory",
    "Indigo",
    "Linen",
    "Moleskin",
    "Twill",
)
STYLES = (
    "Balloon",
    "Bootcut",
    "Cargo",
    "Carpenter",
    "Cigarette",
    "Cropped",
    "Dungaree",
    "Flared",
    "Jogger",
    "Loose",
    "Palazzo",
    "Pleated",
    "Sailor",
    "Straight",
    "Tapered",
    "Turnup",
)
NAME = "Jeans"

REASONS = ("CHANGEDMIND", "BADFIT")
"""Reasons of cancellations, as the shop's systems send them."""

BUILDINGS = ("A", "B", "DM", "DE", "G", "H")
WAREHOUSES = ("Antwerp", "Rotterdam", "Dusseldorf", "Brussels", "Hamburg")

SUSPICIOUS_CUSTOMERS = ("Silas Marrowby", "Petra Quillfeather", "Otto Gimletsen", "Wanda Thistlecroft")
"""Made-up names, always the same, so that a learner recognises the customers who game the prices."""

LOCALES = {
    "EU": ("en_GB", "nl_BE", "de_DE", "fr_FR"),
    "NA": ("en_US", "fr_CA", "es_MX"),
    "SA": ("pt_BR", "es_AR", "es_CO"),
}
"""The Faker locale of customers' names, by region code."""
OTHER_LOCALES = ("en_GB", "fr_FR", "es_ES")
