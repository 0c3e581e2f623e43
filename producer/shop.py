"""The shop itself: which events happen, and when, as a pure function of a seed.

The module does not use Kafka or the wall clock. The shop has its own time, in seconds since it opened. Each step
performs the earliest action of an agenda, which may add follow-ups. The caller decides how fast shop time passes, and
passes the current time for each event.

Event types, fields, ranges and intervals are those of the retail demonstrations that this lab follows, as of the
version with six event types.
"""

from __future__ import annotations

import json
import random
import time
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heappop, heappush, heapreplace
from typing import Any, NamedTuple

from faker import Faker

from producer import words

TOPICS = ("ORDERS", "CANCELLATIONS", "DOORS", "STOCK", "CUSTOMERS", "SENSORS")

# Seconds between events of a kind.
ORDER_INTERVAL = 10.0
DOOR_INTERVAL = 10.0
STOCK_INTERVAL = 60.0
CUSTOMER_INTERVAL = 10.0
SENSOR_INTERVAL = 10.0
FALSE_POSITIVE_INTERVAL = 600.0
SUSPICIOUS_INTERVAL = 3600.0

# Ratios, and the delay of a follow-up in seconds: (least, most).
CANCELLATION_RATIO = 0.005
CANCELLATION_DELAY = (300.0, 7200.0)
FIRST_ORDER_RATIO = 0.22
FIRST_ORDER_DELAY = (180.0, 1380.0)
STOCK_DUPLICATE_RATIO = 0.1
LARGE_CANCELLATION_DELAY = (900.0, 1800.0)
SMALL_ORDER_DELAY = (30.0, 900.0)
LARGE_ORDER_DELAY = (1.0, 900.0)
LARGE_ORDERS_MOST = 3

# Seconds by which an event's own time may lag: badge readers and sensors report when they have a connection.
DOOR_LATENESS = 180
SENSOR_LATENESS = 300

SMALL_QUANTITY = (1, 5)
LARGE_QUANTITY = (5, 10)
PRICE = (14.99, 59.99)
PRICE_REDUCTION = (0.01, 9.99)

CUSTOMERS = 2000
EMPLOYEES = 200


class Event(NamedTuple):
    """An event: a topic's short name, the record's key, and its value as UTF-8 JSON."""

    topic: str
    key: str
    value: bytes


class Customer(NamedTuple):
    """A customer, with the same name and id for the whole run."""

    name: str
    id: str


class Product(NamedTuple):
    """A product and its unit price."""

    description: str
    price: float


@dataclass(frozen=True)
class People:
    """Names, drawn once because Faker is too slow for each event."""

    customers: tuple[str, ...]
    employees: tuple[str, ...]
    """User names, ``first.last``."""

    @classmethod
    def draw(cls, seed: int, region_code: str) -> People:
        """Draws the people of a region; the same seed gives the same people."""
        locales = words.LOCALES.get(region_code, words.OTHER_LOCALES)
        customers: list[str] = []
        employees: list[str] = []
        for number, locale in enumerate(locales):
            faker = Faker(locale)
            faker.seed_instance(seed + number)
            customers += [faker.name() for _ in range(CUSTOMERS // len(locales))]
            employees += [_username(faker.first_name(), faker.last_name()) for _ in range(EMPLOYEES // len(locales))]
        return cls(tuple(customers), tuple(employees))


Action = Callable[[int], "list[Event]"]
"""An action of the agenda: takes the time in epoch milliseconds, returns the events."""


class Shop:
    """A day at Loosehanger Jeans, one step at a time.

    Args:
        seed: the same seed, region code, warehouses and times of steps give the same events.
        region_code: the region code of every order.
        warehouses: the warehouses that stock arrives at.
        topics: short names of the topics; events of others are left out.
    """

    def __init__(
        self,
        seed: int,
        region_code: str = "EU",
        warehouses: Sequence[str] = words.WAREHOUSES,
        topics: Collection[str] = TOPICS,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what is wanted
        self._region_code = region_code
        self._warehouses = tuple(warehouses)
        self._topics = frozenset(topics)
        people = People.draw(seed, region_code)
        self._customers = [Customer(name, self._uuid()) for name in people.customers]
        self._suspicious = [Customer(name, self._uuid()) for name in words.SUSPICIOUS_CUSTOMERS]
        self._employees = people.employees
        self._time = 0.0
        self._serial = 0
        # (due time, serial number, interval or 0, action): the serial number keeps ties in order.
        self._agenda: list[tuple[float, int, float, Action]] = []
        for interval, action in (
            (ORDER_INTERVAL, self._normal_order),
            (DOOR_INTERVAL, self._badge_in),
            (STOCK_INTERVAL, self._stock_movement),
            (CUSTOMER_INTERVAL, self._new_customer),
            (SENSOR_INTERVAL, self._sensor_reading),
            (FALSE_POSITIVE_INTERVAL, self._false_positive),
            (SUSPICIOUS_INTERVAL, self._suspicious_orders),
        ):
            # Each kind starts at a random time in its first interval, so that not all events are due at once.
            self._enter(self._random.uniform(0, interval), action, interval)

    @property
    def due(self) -> float:
        """Shop time of the next step, in seconds since it opened."""
        return self._agenda[0][0]

    def step(self, now_ms: int) -> list[Event]:
        """Performs the next action.

        Args:
            now_ms: the current time for the events, in epoch milliseconds.

        Returns:
            The events, in order; none if their topics are left out.
        """
        self._time, _, interval, action = self._agenda[0]
        if interval:
            self._serial += 1
            heapreplace(self._agenda, (self._time + interval, self._serial, interval, action))
        else:
            heappop(self._agenda)
        return [event for event in action(now_ms) if event.topic in self._topics]

    def _enter(self, delay: float, action: Action, interval: float = 0) -> None:
        self._serial += 1
        heappush(self._agenda, (self._time + delay, self._serial, interval, action))

    # Recurring events.

    def _normal_order(self, now_ms: int) -> list[Event]:
        quantity = self._random.randint(SMALL_QUANTITY[0], LARGE_QUANTITY[1])
        order = self._order(now_ms, self._random.choice(self._customers), self._product(), quantity)
        if self._random.random() < CANCELLATION_RATIO:
            self._cancel_later(order.key, CANCELLATION_DELAY)
        return [order]

    def _badge_in(self, now_ms: int) -> list[Event]:
        record_id = self._uuid()
        body = {
            "recordid": record_id,
            "door": self._place(10, 60),
            "employee": self._random.choice(self._employees),
            "badgetime": timestamp(self._late(now_ms, DOOR_LATENESS)),
        }
        return [_event("DOORS", record_id, body)]

    def _stock_movement(self, now_ms: int) -> list[Event]:
        movement_id = self._uuid()
        body = {
            "movementid": movement_id,
            "warehouse": self._random.choice(self._warehouses),
            "product": self._description(),
            "quantity": self._random.randint(20, 500) // 10 * 10,
            "updatetime": timestamp(now_ms),
        }
        event = _event("STOCK", movement_id, body)
        return [event, event] if self._random.random() < STOCK_DUPLICATE_RATIO else [event]

    def _new_customer(self, now_ms: int) -> list[Event]:
        customer = Customer(self._random.choice(self._customers).name, self._uuid())
        body = {"customerid": customer.id, "customername": customer.name, "registered": timestamp(now_ms)}
        if self._random.random() < FIRST_ORDER_RATIO:
            self._order_later(self._random.uniform(*FIRST_ORDER_DELAY), customer, self._product(), 1)
        return [_event("CUSTOMERS", customer.id, body)]

    def _sensor_reading(self, now_ms: int) -> list[Event]:
        sensor_id = self._place(10, 30)
        body = {
            "sensortime": sensor_timestamp(self._late(now_ms, SENSOR_LATENESS)),
            "sensorid": sensor_id,
            "temperature": round(self._random.uniform(19.5, 23.5), 1),
            "humidity": self._random.randint(41, 59),
        }
        return [_event("SENSORS", sensor_id, body)]

    def _false_positive(self, now_ms: int) -> list[Event]:
        """A customer orders fewer at a better price and then cancels the large order: odd, and honest."""
        customer, product = self._random.choice(self._customers), self._product()
        large = self._order(now_ms, customer, product, self._random.randint(*LARGE_QUANTITY))
        self._cancel_later(large.key, LARGE_CANCELLATION_DELAY)
        delay = self._random.uniform(*SMALL_ORDER_DELAY)
        self._order_later(delay, customer, self._reduced(product), self._random.randint(*SMALL_QUANTITY))
        return [large]

    def _suspicious_orders(self, _now_ms: int) -> list[Event]:
        """A customer games the prices: large orders under other names, cancelled later, and a small one at the drop."""
        product = self._product()
        last = 0.0
        for customer in self._random.sample(self._customers, self._random.randint(1, LARGE_ORDERS_MOST)):
            delay = self._random.uniform(*LARGE_ORDER_DELAY)
            quantity = self._random.randint(*LARGE_QUANTITY)
            self._enter(delay, partial(self._large_order, customer, product, quantity))
            last = max(last, delay)
        customer, quantity = self._random.choice(self._suspicious), self._random.randint(*SMALL_QUANTITY)
        delay = last + self._random.uniform(*LARGE_ORDER_DELAY)
        self._order_later(delay, customer, self._reduced(product), quantity)
        return []

    # Follow-ups.

    def _large_order(self, customer: Customer, product: Product, quantity: int, now_ms: int) -> list[Event]:
        order = self._order(now_ms, customer, product, quantity)
        self._cancel_later(order.key, LARGE_CANCELLATION_DELAY)
        return [order]

    def _order_later(self, delay: float, customer: Customer, product: Product, quantity: int) -> None:
        self._enter(delay, lambda now_ms: [self._order(now_ms, customer, product, quantity)])

    def _cancel_later(self, order_id: str, delay: tuple[float, float]) -> None:
        self._enter(self._random.uniform(*delay), lambda now_ms: [self._cancellation(now_ms, order_id)])

    # The parts of events.

    def _order(self, now_ms: int, customer: Customer, product: Product, quantity: int) -> Event:
        order_id = self._uuid()
        body = {
            "id": order_id,
            "customer": customer.name,
            "customerid": customer.id,
            "description": product.description,
            "price": product.price,
            "quantity": quantity,
            "region": self._region_code,
            "ordertime": timestamp(now_ms),
        }
        return _event("ORDERS", order_id, body)

    def _cancellation(self, now_ms: int, order_id: str) -> Event:
        cancellation_id = self._uuid()
        body = {
            "id": cancellation_id,
            "orderid": order_id,
            "canceltime": timestamp(now_ms),
            "reason": self._random.choice(words.REASONS),
        }
        return _event("CANCELLATIONS", cancellation_id, body)

    def _product(self) -> Product:
        return Product(self._description(), round(self._random.uniform(*PRICE), 2))

    def _reduced(self, product: Product) -> Product:
        return product._replace(price=round(product.price - self._random.uniform(*PRICE_REDUCTION), 2))

    def _description(self) -> str:
        choice = self._random.choice
        return f"{choice(words.SIZES)} {choice(words.MATERIALS)} {choice(words.STYLES)} {words.NAME}"

    def _place(self, first: int, last: int) -> str:
        return (
            f"{self._random.choice(words.BUILDINGS)}-{self._random.randint(0, 3)}-{self._random.randint(first, last)}"
        )

    def _late(self, now_ms: int, most_s: int) -> int:
        return now_ms - int(self._random.random() * most_s * 1000)

    def _uuid(self) -> str:
        """Returns a version 4 UUID from the seeded generator; ``uuid.UUID`` costs three times as much."""
        digits = f"{self._random.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def events_per_second(topics: Collection[str] = TOPICS) -> float:
    """Returns the average events of these topics per second of shop time."""
    orders, false_positives, suspicious = 1 / ORDER_INTERVAL, 1 / FALSE_POSITIVE_INTERVAL, 1 / SUSPICIOUS_INTERVAL
    large = (1 + LARGE_ORDERS_MOST) / 2 * suspicious + false_positives
    rates = {
        "ORDERS": orders + FIRST_ORDER_RATIO / CUSTOMER_INTERVAL + large + false_positives + suspicious,
        "CANCELLATIONS": orders * CANCELLATION_RATIO + large,
        "DOORS": 1 / DOOR_INTERVAL,
        "STOCK": (1 + STOCK_DUPLICATE_RATIO) / STOCK_INTERVAL,
        "CUSTOMERS": 1 / CUSTOMER_INTERVAL,
        "SENSORS": 1 / SENSOR_INTERVAL,
    }
    return sum(rates[topic] for topic in topics)


def timestamp(epoch_ms: int) -> str:
    """Formats a time for most events, in UTC: ``2025-11-21 09:30:00.125``."""
    return f"{_second(epoch_ms // 1000)}.{epoch_ms % 1000:03d}"


@lru_cache(maxsize=4096)
def _second(epoch_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(epoch_s))


def sensor_timestamp(epoch_ms: int) -> str:
    """Formats a time for sensors: ``Fri Nov 21 09:30:00 UTC 2025``."""
    return _sensor_second(epoch_ms // 1000)


@lru_cache(maxsize=4096)
def _sensor_second(epoch_s: int) -> str:
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(epoch_s))


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _event(topic: str, key: str, body: dict[str, Any]) -> Event:
    return Event(topic, key, _encode(body).encode())


def _username(first: str, last: str) -> str:
    return f"{_letters(first)}.{_letters(last)}"


def _letters(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in plain if letter.isascii() and letter.isalpha())
