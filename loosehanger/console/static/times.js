// Times in the viewer's time zone.
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23",
});

export function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const text = full.format(new Date(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}

const minutes = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export function minuteOf(seconds) {
  return minutes.format(new Date(seconds * 1000));
}

const seconds = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

export function secondOf(epoch) {
  return seconds.format(new Date(epoch * 1000));
}

export function clockTime(milliseconds) {
  const time = document.createElement("time");
  const moment = new Date(milliseconds);
  if (Number.isNaN(moment.getTime()) || milliseconds < 0) return document.createTextNode("–");
  time.dateTime = moment.toISOString();
  time.title = full.format(moment);
  time.textContent = clock.format(moment);
  return time;
}
