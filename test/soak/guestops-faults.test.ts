/**
 * Changes to a guest that is off, cut off: cancelled and killed in the middle of a program of libguestfs, killed before and in
 * the middle of what makes them final. The disk is unchanged or has all of the change, and nothing else is left.
 */
import { createHash } from 'node:crypto';
import { chmodSync, createReadStream, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { AgentAlone, lostAnswer } from '../e2e/agent-alone.ts';
import type { Guest } from '../lab/guest.ts';
import { guestfsMissing } from '../lab/guestfs.ts';
import { listProcesses } from '../lab/processes.ts';
import { run, waitFor } from '../lab/run.ts';
import { defineDebian } from './debian.ts';

// several starts of an emulated machine in one test: it ends what hangs on slow machines too
jest.setTimeout(1_800_000);

let alone: AgentAlone;
let guest: Guest;
let domainId: string;
let disk: string;

const guestfs = await guestfsMissing();
const suite = guestfs ? describe.skip : describe;
if (guestfs) process.stderr.write(`guestops: ${guestfs}\n`);

/** Starts naming the guest, which is off. */
async function startNaming(hostname: string): Promise<string> {
  const operationId = newId();
  await alone.guests.setHostname({ operationId, domainId, hostname, restart: false }).catch(lostAnswer);
  return operationId;
}

/** Processes of an operation: its overlays have its id in their paths. */
const programsOf = (operationId: string) =>
  listProcesses()
    .filter(({ command }) => command.includes(operationId))
    .map(({ command }) => command.slice(0, 100));
/** The appliance runs: virt-customize is in the middle of its work. */
const inTheMiddle = (operationId: string) =>
  waitFor(
    'the appliance',
    () => programsOf(operationId).some(command => /^\S*qemu-system/.test(command)),
    240_000,
  );

/** All that an operation could leave or change. */
async function picture() {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(disk)) hash.update(chunk as Buffer);
  const scratch = join(alone.agent.stateDir, 'scratch');
  return {
    disk: hash.digest('hex'),
    scratch: existsSync(scratch) ? readdirSync(scratch) : [],
    pools: [0, 1].map(pool => alone.files(pool)),
    mounts: (await alone.world.node.runInside(['cat', '/proc/self/mounts'])).stdout,
    temporary: readdirSync('/tmp').filter(name => name.startsWith('libguestfs')),
    // libvirt leaves the element when what a change noted there is gone again
    definition: (await guest.xml(true)).replace(/\n\s*<metadata\/>/, ''),
  };
}

/** The host name on the disk, and that the disk is sound. */
async function nameOnDisk(): Promise<string> {
  await run(['qemu-img', 'check', '-q', disk]);
  const env = { ...process.env, LIBGUESTFS_BACKEND: 'direct', LIBGUESTFS_BACKEND_SETTINGS: 'force_tcg' };
  const { stdout } = await run(['virt-cat', '-a', disk, '/etc/hostname'], { env, timeoutMs: 900_000 });
  return stdout.trim();
}

suite('a change of a guest that is off', () => {
  beforeAll(async () => {
    alone = await AgentAlone.start();
    guest = await defineDebian(alone.world.node, 'debian');
    domainId = await guest.uuid();
    disk = (await guest.disks()).vda!;
  });
  afterAll(() => alone?.stop());

  test('that is cancelled in the middle leaves nothing', async () => {
    const before = await picture();
    const id = await startNaming('canceled');
    await inTheMiddle(id);
    await alone.operations.cancel({ id });
    const { state, warnings } = await alone.ended(id);
    expect([state, warnings]).toEqual([OperationState.CANCELED, []]);
    expect(programsOf(id)).toEqual([]);
    expect(await picture()).toEqual(before);
  });

  test('goes with an agent that is killed, and the next one leaves nothing of it', async () => {
    const before = await picture();
    const id = await startNaming('killed');
    await inTheMiddle(id);
    await alone.agent.daemon.kill();
    await waitFor('the end of its programs', () => programsOf(id).length === 0, 60_000);
    await alone.up();
    await failed(id);
    expect(await picture()).toEqual(before);
  });

  test('is not made by an agent that is killed before that is decided', async () => {
    const before = await picture();
    await alone.arm('set_hostname.apply.before=kill');
    const id = await startNaming('undecided');
    await waitFor('the death of the agent', () => alone.agent.daemon.pid === undefined, 280_000);
    await alone.up();
    await failed(id);
    expect([programsOf(id), await picture()]).toEqual([[], before]);
  });

  test('is completed after an agent that is killed while it is made', async () => {
    const before = await picture();
    const id = await killedAt('commit', () => startNaming('whole'));
    await alone.up();
    const { state, warnings } = await alone.ended(id);
    expect([state, warnings]).toEqual([OperationState.SUCCEEDED, []]);
    expect({ ...(await picture()), disk: '' }).toEqual({ ...before, disk: '' });
    expect(await nameOnDisk()).toBe('whole');
  });

  test('is there when the guest starts', async () => {
    await guest.start();
    await guest.waitForAgent(1_200_000);
    expect((await guest.sh('uname -n')).trim()).toBe('whole');
  });
});

async function failed(id: string): Promise<void> {
  const { state, error, warnings } = await alone.ended(id);
  expect([state, error?.msgKey, warnings]).toEqual([OperationState.FAILED, 'interrupted', []]);
}

/** Runs `work` in an agent that dies when it comes to a command of qemu-img, which then does nothing. */
async function killedAt<T>(command: string, work: () => Promise<T>): Promise<T> {
  const dir = join(alone.world.dir, 'deadly');
  mkdirSync(dir, { recursive: true });
  const script = `#!/bin/sh\n[ "$1" = ${command} ] && kill -9 $PPID && exit 1\nPATH=\${PATH#*:} exec qemu-img "$@"\n`;
  writeFileSync(join(dir, 'qemu-img'), script);
  chmodSync(join(dir, 'qemu-img'), 0o755);
  const { PATH } = process.env;
  process.env.PATH = `${dir}:${PATH}`;
  try {
    await alone.restart();
    const result = await work();
    await waitFor('the death of the agent', () => alone.agent.daemon.pid === undefined, 280_000);
    return result;
  } finally {
    process.env.PATH = PATH;
  }
}
