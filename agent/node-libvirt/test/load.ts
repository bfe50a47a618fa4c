// load.ts URI CALLS: rounds of so many calls of several kinds at once, each answer checked, until a round leaves the memory as
// it was; prints a JSON summary. A process of its own, so that its memory is its own.

import { connect, ErrorCode, isLibvirtError, type Libvirt } from '../src/index.ts';

const [uri = '', count = '10000'] = process.argv.slice(2);
const CONCURRENT = 24;
const MAX_ROUNDS = 8;
/** A round that leaves less than 1 KiB a call leaves nothing of each call. */
const FLAT_BYTES_PER_CALL = 1024;
const NONE = '00000000-0000-4000-8000-000000000000';
const calls = Number(count);
const wrong: string[] = [];
let made = 0;

const libvirt = await connect(uri);
const domains = await libvirt.domains();

type Check = (libvirt: Libvirt, n: number) => Promise<boolean>;
const CHECKS: Check[] = [
  async (_, n) => (await domains[n % domains.length]!.state()).state === 5,
  async (_, n) => (await domains[n % domains.length]!.info()).maxMemoryKiB === 32 * 1024,
  async (_, n) => {
    const domain = domains[n % domains.length]!;
    const xml = await domain.xml(2, { urgent: n % 2 === 0 });
    return xml.includes(domain.uuid) && xml.includes(`<name>${domain.name}</name>`);
  },
  async l => (await l.domains()).length === domains.length,
  async l => (await l.domainStats()).length === domains.length,
  async (l, n) =>
    (await l.domainByName(domains[n % domains.length]!.name)).uuid === domains[n % domains.length]!.uuid,
  // Errors of many threads at once: each must be its own call's.
  (l, n) => fails(l.domainByName(`none-${n}`), ErrorCode.NO_DOMAIN, `none-${n}`),
  l => fails(l.domain(NONE).xml(), ErrorCode.NO_DOMAIN, NONE),
  (_, n) => fails(domains[n % domains.length]!.destroy(), ErrorCode.OPERATION_INVALID, 'not running'),
  (_, n) =>
    fails(domains[n % domains.length]!.snapshot(`s-${n}`).xml(), ErrorCode.NO_DOMAIN_SNAPSHOT, `s-${n}`),
];

async function fails(call: Promise<unknown>, code: number, text: string): Promise<boolean> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  return isLibvirtError(error) && error.code === code && error.message.includes(text);
}

async function worker(until: number): Promise<void> {
  while (made < until) {
    const n = made++;
    const check = n % CHECKS.length;
    try {
      if (!(await CHECKS[check]!(libvirt, n))) wrong.push(`check ${check}: wrong answer`);
    } catch (error) {
      wrong.push(`check ${check}: ${error}`);
    }
  }
}

async function round(until: number): Promise<number> {
  await Promise.all(Array.from({ length: CONCURRENT }, () => worker(until)));
  return process.memoryUsage.rss();
}

// Rounds fill caches and heaps of every worker first, the longer the busier the machine is; what leaks grows in all of them.
// All workers start now, so that a later one does not look like growth.
await Promise.all(Array.from({ length: CONCURRENT }, () => libvirt.hostname({ urgent: true })));
const sizes = [await round(calls)];
let isFlat: boolean;
do {
  sizes.push(await round(calls * (sizes.length + 1)));
  isFlat = sizes.at(-1)! - sizes.at(-2)! < calls * FLAT_BYTES_PER_CALL;
} while (!isFlat && sizes.length < MAX_ROUNDS);
const threads = process.report.getReport() as { workers?: unknown[] };
await libvirt.close();
const workers = threads.workers?.length ?? 0;
console.log(JSON.stringify({ calls: made, wrong: wrong.slice(0, 10), isFlat, sizes, workers }));
