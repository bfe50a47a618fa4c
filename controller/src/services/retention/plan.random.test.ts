/**
 * Plans for random backups and rules, against an oracle that was written from the rules' words alone: it sorts into periods by what Intl
 * writes of each time, and asks of each file by itself. `VIRTKEEP_RETENTION_CASES` and `VIRTKEEP_RETENTION_SEED` choose others and more.
 */
import { expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { PERIODS, type Period, planRetention, type RetentionFile, type RetentionRules } from './plan.ts';

const CASES = Number(process.env.VIRTKEEP_RETENTION_CASES ?? 1000);
const SEED = Number(process.env.VIRTKEEP_RETENTION_SEED ?? 1);
const ZONES = [
  'UTC',
  'Europe/Berlin',
  'America/New_York',
  'Australia/Lord_Howe',
  'Asia/Kathmandu',
  'Pacific/Apia',
];
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const formats = new Map<string, Intl.DateTimeFormat>();

/** `2026-03-31 Tue 14 GMT+2`, in parts. */
function written(time: number, timeZone: string): Record<string, string> {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat('en-CA', {
      timeZone,
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      weekday: 'short',
      hour: '2-digit',
      hourCycle: 'h23',
      timeZoneName: 'longOffset',
    });
    formats.set(timeZone, format);
  }
  return Object.fromEntries(format.formatToParts(time).map(({ type, value }) => [type, value]));
}

const WEEKDAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];

function nameOf(period: Period, { id, newest }: RetentionFile, zone: string): string {
  const { year, month, day, weekday, hour, timeZoneName } = written(newest, zone);
  const date = `${year}-${month}-${day}`;
  const monday = new Date(Date.parse(date) - WEEKDAYS.indexOf(weekday!.slice(0, 3)) * DAY);
  const names: Record<Period, string> = {
    last: id,
    hourly: `${date} ${hour} ${timeZoneName}`,
    daily: date,
    weekly: monday.toISOString().slice(0, 10),
    monthly: `${year}-${month}`,
    yearly: `${year}`,
  };
  return names[period];
}

/** Those that the rules of periods keep. @param files good, not protected, newest first */
function ofPeriods(files: RetentionFile[], keep: Partial<Record<Period, number>>, zone: string): Set<string> {
  const kept: RetentionFile[] = [];
  let looked = files;
  for (const period of PERIODS) {
    const taken = new Set(kept.map(file => nameOf(period, file, zone)));
    const groups = [...Map.groupBy(looked, file => nameOf(period, file, zone))];
    const chosen = groups.filter(([name]) => !taken.has(name)).slice(0, keep[period] ?? 0);
    kept.push(...chosen.map(([, [newest]]) => newest!));
    const seen = new Set(chosen.flatMap(([, members]) => members));
    looked = looked.filter(file => !seen.has(file));
  }
  return new Set(kept.map(({ id }) => id));
}

/** Whether a file goes, by the words of the rules. */
function goes(file: RetentionFile, all: RetentionFile[], rules: RetentionRules, now: number): boolean {
  const isNewer = (a: RetentionFile, b: RetentionFile) =>
    a.newest > b.newest || (a.newest === b.newest && a.id < b.id);
  const ofVm = all.filter(({ domainId }) => domainId === file.domainId);
  const newerGood = ofVm.filter(other => other.isGood && isNewer(other, file));
  if (file.isProtected || file.isRead || file.isBusy || file.isExtendable) return false;
  // the last good one stays, and one that is not good until a good one is newer
  if (newerGood.length === 0) return false;
  // only what has all disks counts as newer, and no time that is yet to come by more than a day
  const wholeTime = ({ newestWhole }: RetentionFile) =>
    newestWhole === null || newestWhole - now > DAY ? Number.NEGATIVE_INFINITY : newestWhole;
  const isWholer = (a: RetentionFile, b: RetentionFile) =>
    wholeTime(a) > wholeTime(b) || (wholeTime(a) === wholeTime(b) && isNewer(a, b));
  if (file.isGood && wholeTime(file) > Number.NEGATIVE_INFINITY)
    if (!ofVm.some(other => other.isGood && isWholer(other, file))) return false;
  if (!file.isGood && !ofVm.some(other => other.isGood && wholeTime(other) > file.newest)) return false;
  const counted = ofVm.filter(({ isGood, isProtected }) => isGood && !isProtected);
  if (rules.limitDays !== null && file.newest < now - rules.limitDays * DAY) return true;
  if (rules.keepCount !== null && counted.filter(other => isNewer(other, file)).length >= rules.keepCount)
    return true;
  if (rules.keep === null) return false;
  const sorted = counted.toSorted((a, b) => (isNewer(a, b) ? -1 : 1));
  const kept = ofPeriods(sorted, rules.keep, rules.timeZone);
  if (file.isGood) return !kept.has(file.id);
  const older = ofVm.filter(({ id, newest }) => kept.has(id) && newest <= file.newest);
  return kept.size > 0 && older.length === 0;
}

const random = seededRandom(SEED);
const chance = (percent: number) => random(100) < percent;
const upTo = (most: number) => 1 + random(most);
const oneOf = <T>(things: readonly T[]): T => things[random(things.length)]!;

/** Times that fall together, around changes of the clocks and turns of the year too; some of a clock that was ahead. */
function randomTime(now: number): number {
  const span = oneOf([6 * HOUR, 3 * DAY, 40 * DAY, 800 * DAY]);
  const time = now - random(span / 1000) * 1000 + (chance(5) ? random(60) * DAY : 0);
  return chance(30) ? Math.floor(time / HOUR) * HOUR : time;
}

function randomFiles(now: number): RetentionFile[] {
  return Array.from({ length: random(20) }, (_, index) => {
    const newest = randomTime(now);
    return {
      id: `f${index}`,
      domainId: chance(80) ? 'a' : 'b',
      newest,
      newestWhole: chance(85) ? newest : chance(30) ? null : newest - random(3 * DAY),
      isGood: chance(85),
      isProtected: chance(7),
      isRead: chance(4),
      isBusy: chance(4),
      isExtendable: chance(7),
      size: random(1000),
    };
  });
}

function randomRules(): RetentionRules {
  const keep = Object.fromEntries(PERIODS.filter(() => chance(40)).map(period => [period, random(5)]));
  return {
    keepCount: chance(40) ? upTo(8) : null,
    limitDays: chance(40) ? oneOf([1, 7, 30, 365]) : null,
    keep: chance(60) ? keep : null,
    timeZone: oneOf(ZONES),
  };
}

test(`${CASES} random plans are the oracle's (seed ${SEED})`, () => {
  for (let count = 0; count < CASES; count += 1) {
    const now = Date.parse('2020-01-01T00:00:00Z') + random(3000) * DAY + random(DAY);
    const [files, rules] = [randomFiles(now), randomRules()];
    const plan = planRetention(files, rules, now);
    const going = plan.filter(({ action }) => action === 'delete').map(({ id }) => id);
    const wanted = files.filter(file => goes(file, files, rules, now)).map(({ id }) => id);
    expect({ count, rules, files, going: going.sort() }).toEqual({
      count,
      rules,
      files,
      going: wanted.sort(),
    });
    expect(plan).toHaveLength(files.length);
  }
});
