/**
 * Runs the tests, tells which files took longest and what failed, and prints, as the very last line, how many passed and failed.
 * usage: run.ts [project…]   (unit, contract, postgres, controllers, integration, e2e; default all of them; soak only when it is asked for)
 *
 * Two lanes run side by side, each two files at a time: what computes, and what starts hypervisor nodes, whose guests are emulated. Each
 * keeps two cores busy when the other has ended. More at a time would take as long in all, and each file longer.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { codeCacheDirectory } from '../shared/src/code-cache.ts';
import { QUICK_STARTS } from './lab/agent.ts';
import { sweepOrphans } from './lab/leaks.ts';
import { ROOT } from './lab/paths.ts';

/** A line of test/results-reporter.js. */
interface FileResult {
  name: string;
  passed: number;
  failed: number;
  failures: { test: string; reason: string }[];
  seconds: number;
}

interface Outcome {
  passed: number;
  failed: number;
  files: FileResult[];
}

const SLOWEST_SHOWN = 10;
const FAILURES_SHOWN = 10;
const FAILURE_CHARACTERS = 1500;
/** Of each failure at the very end: often the end of a log is all that is kept. */
const FAILURE_LINE_CHARACTERS = 160;

interface Lane {
  projects: string[];
  flags: string[];
  /** Files at a time. */
  workers: number;
  limitMinutes: number;
}

/**
 * A busy machine makes slow, not wrong: the limits end what hangs, they measure nothing. The two lanes take each other's
 * processor time, so the one that computes may last as long as the other.
 */
const LANES: readonly Lane[] = [
  {
    projects: ['unit', 'contract', 'postgres', 'controllers'],
    flags: ['--testTimeout=900000'],
    workers: 2,
    limitMinutes: 80,
  },
  { projects: ['integration', 'e2e'], flags: [], workers: 2, limitMinutes: 80 },
  { projects: ['soak'], flags: [], workers: 1, limitMinutes: 360 },
];

/** A worker that has grown beyond this is replaced before its next file: each program that a large process starts costs dear. */
const WORKER_MEMORY = '400MB';

/**
 * Young generation of a worker, MB: tests make much that is garbage soon, and workers are not many. All cores are busy with tests: threads
 * that collect beside would only cost more.
 */
const WORKER_HEAP = ['--max-semi-space-size=32', '--min-semi-space-size=32', '--single-threaded-gc'];

/**
 * How a worker has its memory from the system: in large pages, of which there are few to copy for each program that it starts, and
 * in one arena.
 */
const WORKER_MALLOC = 'glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1';

/** So long may a test run take to end once its results are written. */
const LINGER_MS = 20_000;

const BUNDLE = join(ROOT, 'bundle');

const wanted = process.argv.slice(2);
const scratch = mkdtempSync(join(tmpdir(), 'vk-run-'));
const total: Outcome = { passed: 0, failed: 0, files: [] };
/** Somebody asked this run to end: what it began is cleaned up, nothing more is begun. */
let stopped = false;
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }));

execFileSync(process.execPath, [join(ROOT, 'packaging', 'bundle.ts')], { stdio: 'inherit' });
await reportLeaks('an earlier run left behind, now removed');
const isWanted = (project: string) => (wanted.length === 0 ? project !== 'soak' : wanted.includes(project));
const lanes = LANES.map(lane => ({ ...lane, projects: lane.projects.filter(isWanted) })).filter(
  ({ projects }) => projects.length > 0,
);
for (const outcome of await Promise.all(lanes.map(runJest))) {
  total.passed += outcome.passed;
  total.failed += outcome.failed;
  total.files.push(...outcome.files);
}
total.failed += await reportLeaks('left behind by this run, now removed');
process.exitCode = total.failed === 0 && total.passed > 0 && !stopped ? 0 : 1;
tellSlowest(total.files);
tellFailures(total.files);
process.stdout.write(`\n${total.passed} passed, ${total.failed} failed\n`);

async function reportLeaks(what: string): Promise<number> {
  const leaks = await sweepOrphans();
  if (leaks.length > 0) process.stdout.write(`${what}:\n  ${leaks.join('\n  ')}\n`);
  return leaks.length > 0 ? 1 : 0;
}

function tellSlowest(files: Outcome['files']): void {
  const slowest = files.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST_SHOWN);
  const lines = slowest.map(({ name, seconds }) => `  ${seconds.toFixed(0).padStart(4)} s  ${name}`);
  if (lines.length > 0) process.stdout.write(`\nslowest files:\n${lines.join('\n')}\n`);
}

function tellFailures(files: Outcome['files']): void {
  const failures = files.flatMap(({ name, failures }) => failures.map(failure => ({ name, ...failure })));
  const shown = failures.slice(0, FAILURES_SHOWN);
  for (const { name, test, reason } of shown)
    process.stdout.write(`\n${name}\n  ${test}\n${reason.slice(0, FAILURE_CHARACTERS)}\n`);
  if (shown.length > 0) process.stdout.write('\n');
  for (const { name, test, reason } of shown) {
    const line = `failed: ${basename(name)}: ${test}: ${reason.split('\n', 1)[0]}`;
    process.stdout.write(`${line.slice(0, FAILURE_LINE_CHARACTERS)}\n`);
  }
}

/** One jest run; a run that crashed or took too long counts as one failure. */
async function runJest({ projects, flags, workers, limitMinutes }: Lane): Promise<Outcome> {
  const results = join(scratch, `${projects[0]}.jsonl`);
  const jest = join(ROOT, 'node_modules', 'jest', 'bin', 'jest.js');
  const argv = [
    '--experimental-vm-modules',
    '--no-warnings',
    ...WORKER_HEAP,
    jest,
    '--reporters=default',
    `--reporters=${join(ROOT, 'test', 'results-reporter.js')}`,
  ];
  const child = spawn(
    process.execPath,
    [
      ...argv,
      ...flags,
      `--maxWorkers=${workers}`,
      `--workerIdleMemoryLimit=${WORKER_MEMORY}`,
      '--passWithNoTests',
      '--selectProjects',
      ...projects,
    ],
    {
      cwd: ROOT,
      // its report for people goes to stderr
      stdio: ['ignore', 'ignore', 'inherit'],
      env: {
        ...process.env,
        CI: 'true',
        VIRTKEEP_TEST_RESULTS: results,
        VIRTKEEP_BUNDLE: BUNDLE,
        NODE_COMPILE_CACHE: codeCacheDirectory(),
        GLIBC_TUNABLES: WORKER_MALLOC,
        ...(projects.includes('soak') ? { VIRTKEEP_EVERY_CASE: '1' } : { [QUICK_STARTS]: '1' }),
      },
    },
  );
  let cut = false;
  const timer = setTimeout(() => {
    cut = true;
    child.kill('SIGKILL');
  }, limitMinutes * 60_000);
  // jest waits for handles that a failed test left open; its results are complete before that
  let lingered = false;
  const watch = setInterval(() => {
    if (!readResults(results).complete || Date.now() - statSync(results).mtimeMs < LINGER_MS) return;
    lingered = true;
    child.kill('SIGKILL');
  }, 1000);
  const forward = (signal: NodeJS.Signals) => {
    stopped = true;
    child.kill(signal);
  };
  process.once('SIGINT', forward).once('SIGTERM', forward);
  const exitCode = await new Promise<number | null>(resolve => child.once('exit', resolve));
  clearTimeout(timer);
  clearInterval(watch);
  process.off('SIGINT', forward).off('SIGTERM', forward);
  const { files, complete } = readResults(results);
  if (cut)
    process.stdout.write(
      `\n${projects.join(', ')}: ended after ${limitMinutes} minutes, ${files.length} files done\n`,
    );
  const passed = sum(files.map(file => file.passed));
  const failed = sum(files.map(file => file.failed));
  const broken = failed === 0 && (!complete || files.length === 0 || (exitCode !== 0 && !lingered));
  return { passed, failed: broken ? 1 : failed, files };
}

/** What the files that have ended came to, and whether all have. */
function readResults(path: string): { files: FileResult[]; complete: boolean } {
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  // what follows the last end of a line is still being written
  const lines = text.split('\n').slice(0, -1);
  const entries = lines.map(line => JSON.parse(line) as FileResult | { complete: true });
  const files = entries
    .filter(entry => 'name' in entry)
    .map(file => ({ ...file, name: relative(ROOT, file.name) }));
  return { files, complete: entries.some(entry => 'complete' in entry) };
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}
