/**
 * `make demo`: the whole way once, with a real guest, through the product's own command. A guest writes a file of known
 * hash and goes on writing; it is backed up while it runs; the archive is read with standard tools; the VM is restored
 * under another name on another pool and started; its agent returns the same hash. Then the running guest is changed, an
 * increment is taken, and both states are restored, each with its own hash. Ends with 1 when anything is amiss.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../lab/free-port.ts';
import { Guest } from '../lab/guest.ts';
import { GUEST_NAME, type Lab, labDown, labOptions, labUp } from '../lab/lab.ts';
import { expectNoLeaks, sweepOrphans } from '../lab/leaks.ts';
import { makeWorldDir, NODE_BIN, ROOT } from '../lab/paths.ts';
import { run, waitFor } from '../lab/run.ts';

const RESTORED_NAME = 'restored-guest';
const KNOWN_MIB = 16;
/** Of the known file, before the increment. */
const CHANGED_MIB = 4;
/** Room for two Debian guests that boot under emulation on a busy machine. */
const BOOT_TIMEOUT_MS = 600_000;

/** What must not change when a guest is backed up. */
interface Running {
  qemuPid: number | undefined;
  bootId: string;
  uptimeSeconds: number;
  rounds: number;
}

let chapter = 0;
const title = (text: string) => {
  chapter += 1;
  process.stdout.write(`\n${chapter}. ${text}\n`);
};
const say = (text: string) => process.stdout.write(`   ${text}\n`);

/** @throws Error that says what should have been */
function must(condition: boolean, what: string): void {
  if (!condition) throw new Error(`not so: ${what}`);
  say(`ok: ${what}`);
}

/** Runs the product's command as a person would, its output shown. @returns what it printed to stdout */
function virtkeep(lab: Lab, ...args: string[]): Promise<string> {
  process.stdout.write(`   $ virtkeep ${args.join(' ')}\n`);
  const cli = join(ROOT, 'controller', 'cli', 'src', 'main.ts');
  const child = spawn(NODE_BIN, [cli, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...lab.env },
  });
  let stdout = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => process.stdout.write(chunk.toString().replace(/^(?=.)/gm, '     ')));
  }
  return new Promise((resolve, reject) => {
    child.once('close', code => {
      if (code === 0) resolve(stdout.trim());
      else reject(new Error(`virtkeep ${args[0]} ended with ${code}`));
    });
  });
}

async function observe(guest: Guest, dir: string): Promise<Running> {
  const text = await guest.sh(
    `cat /proc/sys/kernel/random/boot_id /proc/uptime ${dir}/rounds 2>/dev/null || true`,
  );
  const [bootId = '', uptime = '', rounds = '0'] = text.split('\n');
  return {
    qemuPid: guest.qemuPid(),
    bootId,
    uptimeSeconds: Number(uptime.split(' ')[0]),
    rounds: Number(rounds),
  };
}

/** Starts the guest's own work: random data, synced, for ever; `rounds` counts it and is whole at every instant. */
async function startWriting(guest: Guest, dir: string): Promise<void> {
  const loop = `n=0; while :; do dd if=/dev/urandom of=${dir}/churn$((n % 4)) bs=65536 count=16 conv=fsync; n=$((n + 1)); echo $n > ${dir}/next; mv ${dir}/next ${dir}/rounds; done`;
  await guest.background('/bin/sh', ['-c', loop]);
  await waitFor(
    'the first rounds of writing',
    async () => (await observe(guest, dir)).rounds > 1,
    300_000,
    500,
  );
}

const hashOf = async (guest: Guest, file: string) =>
  (await guest.sh(`sha256sum ${file}`, 120_000)).split(' ')[0]!;

async function demo(lab: Lab): Promise<void> {
  const { guest, options } = lab;
  const node = lab.nodes[0]!;
  const dir = options.guest === 'debian' ? '/mnt/data' : '/mnt/vda';
  const known = `${dir}/known`;

  title(`The guest "${GUEST_NAME}" writes a file of ${KNOWN_MIB} MiB, and goes on writing`);
  say(
    (await guest.sh('. /etc/os-release; echo "$PRETTY_NAME"; uname -r')).trim().replaceAll('\n', ', kernel '),
  );
  await guest.sh(`dd if=/dev/urandom of=${known} bs=1048576 count=${KNOWN_MIB} conv=fsync`, 120_000);
  const hash = await hashOf(guest, known);
  say(`sha256 ${hash}`);
  await startWriting(guest, dir);
  const before = await observe(guest, dir);
  const disksBefore = JSON.stringify(await guest.disks());
  say(`QEMU pid ${before.qemuPid}, up for ${before.uptimeSeconds} s, ${before.rounds} rounds written`);

  title('It is backed up while it runs');
  await virtkeep(lab, 'vms');
  const printed = await virtkeep(lab, 'backup', GUEST_NAME, '--pool', 'fast', '--hash');
  const fileId = printed.split(/\s+/).at(-1)!;
  const after = await observe(guest, dir);
  must(
    after.rounds > before.rounds,
    `it kept writing: ${before.rounds} rounds before, ${after.rounds} after`,
  );
  must(after.qemuPid === before.qemuPid && after.bootId === before.bootId, 'same QEMU process, same boot');
  must(after.uptimeSeconds > before.uptimeSeconds, `it was never down: up for ${after.uptimeSeconds} s`);
  must((await guest.snapshots()).length === 0, 'no saved state is left');
  must(JSON.stringify(await guest.disks()) === disksBefore, 'it runs on its own disks, no overlay is left');

  title('Standard tools read the archive');
  const { path } = await lab.rest.get<{ path: string }>(`/api/library/${fileId}/`);
  await readArchive(path, join(options.dir, 'extracted'));

  title(`It is restored as "${RESTORED_NAME}" on another pool, and started`);
  await virtkeep(lab, 'restore', fileId, '--name', RESTORED_NAME, '--pool', 'bulk', '--start');
  const restored = new Guest(node, RESTORED_NAME);
  const places = Object.values(await restored.disks());
  must(
    places.every(place => place.startsWith(node.pool('bulk').path)),
    `its disks are on the pool "bulk"`,
  );
  say('waiting for its agent (emulated)');
  await restored.waitForAgent(BOOT_TIMEOUT_MS);
  must((await hashOf(restored, known)) === hash, `its agent returns the same hash: ${hash.slice(0, 16)}…`);
  const copy = await observe(restored, dir);
  must(
    copy.rounds >= before.rounds && copy.rounds <= after.rounds,
    `its disk is of the backup's instant: ${copy.rounds} rounds`,
  );
  must((await restored.uuid()) !== (await guest.uuid()), 'it is a VM of its own');

  await restored.destroy();
  await increments(lab, known);

  title('The source');
  const end = await observe(guest, dir);
  must(
    end.rounds > after.rounds && end.bootId === before.bootId,
    `still runs and writes: ${end.rounds} rounds`,
  );
  await virtkeep(lab, 'vms');
  await virtkeep(lab, 'backups');
}

/** One archive, two states of a running guest, each restored with what it held. */
async function increments(lab: Lab, known: string): Promise<void> {
  const { guest } = lab;
  const node = lab.nodes[0]!;
  title('A backup that can be extended; then the guest is changed, and an increment taken');
  const hashes = [await hashOf(guest, known)];
  const made = await virtkeep(lab, 'backup', GUEST_NAME, '--pool', 'fast', '--incremental');
  const fileId = made.split(/\s+/).at(-1)!;
  const sizeOf = async () => (await lab.rest.get<{ size: number }>(`/api/library/${fileId}/`)).size;
  const full = await sizeOf();
  await guest.sh(
    `dd if=/dev/urandom of=${known} bs=1048576 count=${CHANGED_MIB} conv=notrunc,fsync`,
    300_000,
  );
  hashes.push(await hashOf(guest, known));
  await virtkeep(lab, 'backup', GUEST_NAME, '--increment');
  const grown = (await sizeOf()) - full;
  must(grown > 0 && grown < full, `the archive grew by the change: ${grown} bytes on ${full}`);
  const { states } = await lab.rest.get<{ states: unknown[] }>(`/api/library/${fileId}/`);
  must(states.length === 2, 'it holds two states');

  title('Both states are restored and started');
  for (const [index, hash] of hashes.entries()) {
    const state = String(index + 1);
    const name = `state-${state}`;
    await virtkeep(
      lab,
      'restore',
      fileId,
      '--state',
      state,
      '--flatten',
      '--name',
      name,
      '--pool',
      'bulk',
      '--start',
    );
    const copy = new Guest(node, name);
    await copy.waitForAgent(BOOT_TIMEOUT_MS);
    must((await hashOf(copy, known)) === hash, `state ${state} has its own hash: ${hash.slice(0, 16)}…`);
    await copy.destroy();
  }
}

/** Lists and extracts the archive with GNU tar and has sha256sum and qemu-img check what came out. */
async function readArchive(path: string, target: string): Promise<void> {
  mkdirSync(target);
  const show = (argv: [string, ...string[]]) => {
    process.stdout.write(`   $ ${argv.join(' ')}\n`);
    process.stdout.write(
      execFileSync(argv[0], argv.slice(1), { encoding: 'utf8', cwd: target }).replace(/^(?=.)/gm, '     '),
    );
  };
  show(['tar', '-tvf', path]);
  show(['tar', '-xf', path]);
  show(['sha256sum', '-c', `${path}.sha256`]);
  const { stdout } = await run(['find', target, '-name', '*.qcow2']);
  const disks = stdout.trim().split('\n').filter(Boolean);
  must(disks.length > 0, 'there are disks in it');
  for (const disk of disks) show(['qemu-img', 'check', disk]);
}

/** The last words of the daemons, for a failure that has to be understood after the clean-up. */
function logTails(dir: string): string {
  const logs = ['controller/controller.log', 'agent-node1/agent.log'].filter(log =>
    existsSync(join(dir, log)),
  );
  const tail = (log: string) =>
    readFileSync(join(dir, log), 'utf8')
      .trimEnd()
      .split('\n')
      .slice(-15)
      .map(line => line.slice(0, 300))
      .join('\n');
  return logs.map(log => `\n--- ${log}\n${tail(log)}\n`).join('');
}

async function main(): Promise<void> {
  await sweepOrphans();
  const dir = join(makeWorldDir(), 'lab');
  const base = await freePort();
  const env = { ...process.env, LAB_DIR: dir, NODES: '1', PORT: String(base) };
  const cleanUp = async () => {
    title('Cleaning up');
    await labDown(dir);
    await run(['rm', '-rf', join(dir, '..')]);
    expectNoLeaks();
    say('no process, mount, namespace or file of the demo is left');
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void cleanUp().finally(() => process.exit(130)));
  }
  let failure: unknown;
  try {
    title('A hypervisor node, its agent, a controller and a guest come up');
    await demo(await labUp(labOptions(env, say)));
  } catch (error) {
    failure = error;
    process.stdout.write(logTails(dir));
  }
  await cleanUp();
  if (failure) throw failure;
}

main().then(
  () => {
    process.stdout.write('\nThe demo went well.\n');
    process.exit(0);
  },
  error => {
    process.stderr.write(`\nThe demo failed: ${(error as Error).message}\n`);
    process.exit(1);
  },
);
