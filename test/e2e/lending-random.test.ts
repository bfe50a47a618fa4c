// Random operations over three running VMs and four disks: attach, detach, backup, saved states, restarts of the agent and
// of the VMs, deletion of a borrower. After each one the world is what a plain list of loans says, at the end nothing is left.
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { OperationState } from '../../shared/src/gen/virtkeep/agent/v1/operation.ts';
import { newId } from '../../shared/src/ids.ts';
import { defineGuest, type Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone, lostAnswer } from './agent-alone.ts';

const OPERATIONS = Number(process.env.VIRTKEEP_LENDING_OPERATIONS ?? 40);
const SEED = Number(process.env.VIRTKEEP_LENDING_SEED ?? 1);
const LONG_MS = 3_600_000;
const STATE = 'vdisks_attached_to_another_domains';

interface Machine {
  guest: Guest;
  id: string;
  /** Its definition as it was made. */
  xml: string;
  /** Ids of its own disks, in the order of their targets. */
  disks: string[];
  /** Names of the saved states that the test made. */
  states: string[];
}

interface Loan {
  disk: string;
  owner: Machine;
  borrower: Machine;
}

let alone: AgentAlone;
const machines: Machine[] = [];
const random = seededRandom(SEED);
const one = <T>(list: readonly T[]): T => list[random(list.length)]!;
let loans: Loan[] = [];
let counter = 0;

const shares = (machine: Machine) => loans.some(loan => loan.owner === machine);
const files = () => readdirSync(alone.world.node.pool(0).path).sort();

beforeAll(async () => {
  alone = await AgentAlone.start();
  for (const disks of [2, 1, 1]) {
    const guest = await alone.world.defineTiny({ dataDisks: Array(disks).fill({ sizeMiB: 32 }) });
    const [id, xml] = [await guest.uuid(), await guest.xml(true)];
    await guest.start();
    machines.push({ guest, id, xml, disks: [], states: [] });
  }
  for (const machine of machines) {
    await machine.guest.waitForAgent();
    machine.disks = (await alone.domains.get({ id: machine.id })).disks.map(disk => disk.id);
  }
});
afterAll(() => alone?.stop());

/** Starts and ends an operation. @returns "ok", or the key of its error */
async function outcome(start: (operationId: string) => Promise<unknown>): Promise<string> {
  const operationId = newId();
  try {
    await start(operationId).catch(lostAnswer);
  } catch (error) {
    return keyOf(error);
  }
  const { state, error } = await alone.ended(operationId);
  return state === OperationState.SUCCEEDED ? 'ok' : (error?.msgKey ?? String(state));
}

/** A refused start names its key in the details. */
function keyOf(error: unknown): string {
  const text = String((error as { details?: string }).details ?? error);
  const known = [
    ['vdisk_attached_elsewhere', /are attached to other domains/],
    ['vdisk_attached_already', /is attached to .* already/],
    ['vdisk_not_attached', /of another domain is not attached/],
  ] as const;
  return known.find(([, pattern]) => pattern.test(text))?.[0] ?? text;
}

async function attach(): Promise<string> {
  const owner = one(machines);
  const disk = one(owner.disks);
  const borrower = one(machines.filter(machine => machine !== owner));
  const taken = loans.some(loan => loan.disk === disk && loan.borrower === borrower);
  const result = await outcome(operationId =>
    alone.disks.attach({ operationId, domainId: borrower.id, diskId: disk }),
  );
  expect(result).toBe(taken ? 'vdisk_attached_already' : 'ok');
  if (!taken) loans.push({ disk, owner, borrower });
  return `attach a disk of ${owner.guest.name} to ${borrower.guest.name}: ${result}`;
}

async function detach(): Promise<string> {
  const loan = loans.length > 0 && random(8) > 0 ? one(loans) : undefined;
  const borrower = loan?.borrower ?? one(machines);
  const disk =
    loan?.disk ?? one(machines.filter(machine => machine !== borrower).flatMap(({ disks }) => disks));
  const known = loans.find(other => other.disk === disk && other.borrower === borrower);
  const result = await outcome(operationId =>
    alone.disks.detach({ operationId, domainId: borrower.id, diskId: disk }),
  );
  expect(result).toBe(known ? 'ok' : 'vdisk_not_attached');
  loans = loans.filter(other => other !== known);
  return `detach from ${borrower.guest.name}: ${result}`;
}

async function backup(): Promise<string> {
  const { guest, id } = one(machines);
  const machine = machines.find(other => other.id === id)!;
  const request = { domainId: id, fileId: newId(), poolId: alone.world.node.pool(1).uuid };
  const result = await outcome(operationId => alone.backups.start({ operationId, ...request }));
  expect(result).toBe(shares(machine) ? 'vdisk_attached_elsewhere' : 'ok');
  return `backup of ${guest.name}: ${result}`;
}

async function createState(): Promise<string> {
  const machine = one(machines);
  counter += 1;
  const name = `s${counter}`;
  const result = await outcome(operationId =>
    alone.snapshots.create({ operationId, domainId: machine.id, name }),
  );
  expect(result).toBe(shares(machine) ? 'vdisk_attached_elsewhere' : 'ok');
  if (result === 'ok') machine.states.push(name);
  return `state ${name} of ${machine.guest.name}: ${result}`;
}

async function removeState(machine = one(machines)): Promise<string> {
  const name =
    shares(machine) && random(2) === 0 ? STATE : machine.states[random(machine.states.length || 1)];
  if (name === undefined) return `no state of ${machine.guest.name} to delete`;
  const { snapshots } = await alone.snapshots.list({ domainId: machine.id });
  const snapshotId = snapshots.find(snapshot => snapshot.name === name)!.id;
  const result = await outcome(operationId =>
    alone.snapshots.remove({ operationId, domainId: machine.id, snapshotId }),
  );
  expect(result).toBe(shares(machine) ? 'vdisk_attached_elsewhere' : 'ok');
  if (result === 'ok') machine.states = machine.states.filter(other => other !== name);
  return `deletion of state ${name} of ${machine.guest.name}: ${result}`;
}

async function restartAgent(): Promise<string> {
  await alone.restart();
  return 'kill -9 of the agent, and a new one';
}

async function restartMachine(): Promise<string> {
  const { guest } = one(machines);
  await guest.destroy();
  await guest.start();
  await guest.waitForAgent();
  return `power cut of ${guest.name}`;
}

/** Deletes a borrower, by us or behind our back, and defines it anew; one that lends is not to be deleted by us. */
async function removeMachine(): Promise<string> {
  const machine = one(machines);
  const { guest, id, states } = machine;
  const request = { domainId: id, full: false, force: true };
  const refused = shares(machine);
  if (!refused && states.length > 0) return `${guest.name} has states and stays`;
  const byUs = refused || random(2) === 0;
  if (byUs) {
    const result = await outcome(operationId => alone.domains.remove({ operationId, ...request }));
    expect(result).toBe(refused ? 'vdisk_attached_elsewhere' : 'ok');
    if (refused) return `deletion of ${guest.name}: ${result}`;
  } else {
    await guest.destroy();
    await guest.node.virsh('undefine', guest.name);
  }
  loans = loans.filter(loan => loan.borrower !== machine);
  await settled();
  await defineGuest(guest.node, guest.name, machine.xml);
  await guest.start();
  await guest.waitForAgent();
  return `deletion of ${guest.name} ${byUs ? 'by us' : 'behind our back'}`;
}

/** Loans end by themselves when a borrower is gone. */
async function settled(): Promise<void> {
  for (const machine of machines) {
    const { guest, id } = machine;
    const isSettled = async () => {
      const domain = await alone.domains.get({ id }).catch(() => undefined);
      if (!domain) return true;
      const names = await guest.snapshots().catch((): string[] => []);
      const hasState = names.includes(STATE) === shares(machine);
      return hasState && !domain.lockedBy && told(domain.loans) === told(lentBy(machine));
    };
    await waitFor(`the end of what ${guest.name} lent`, isSettled, 180_000);
  }
}

interface ToldLoan {
  diskId: string;
  borrowerId: string;
}

const lentBy = (machine: Machine): ToldLoan[] =>
  loans
    .filter(loan => loan.owner === machine)
    .map(({ disk, borrower }) => ({ diskId: disk, borrowerId: borrower.id }));
const told = (list: readonly ToldLoan[]): string =>
  list
    .map(({ diskId, borrowerId }) => `${diskId} ${borrowerId}`)
    .sort()
    .join();

/** The world against the list of loans. */
async function expectWorld(): Promise<void> {
  await settled();
  for (const machine of machines) {
    const { guest, id, disks, states } = machine;
    const wanted = shares(machine) ? [...states, STATE] : states;
    expect((await guest.snapshots()).sort()).toEqual([...wanted].sort());
    const domain = await alone.domains.get({ id });
    const borrowed = loans.filter(loan => loan.borrower === machine).map(loan => loan.disk);
    expect(domain.attachments.map(({ diskId }) => diskId).sort()).toEqual([...borrowed].sort());
    const aliases = [...(await guest.xml()).matchAll(/alias name='ua-virtkeep-([0-9a-f]{32})'/g)];
    const plain = borrowed.map(disk => disk.replaceAll('-', '')).sort();
    expect(aliases.map(([, alias]) => alias).sort()).toEqual(plain);
    expect(domain.disks.map(disk => disk.id)).toEqual(disks);
    expect(told(domain.loans)).toBe(told(lentBy(machine)));
    for (const disk of domain.disks)
      await run(['qemu-img', 'info', '-U', '--backing-chain', disk.path], { timeoutMs: 120_000 });
  }
}

const KINDS: readonly (readonly [number, () => Promise<string>])[] = [
  [10, attach],
  [9, detach],
  [3, backup],
  [3, createState],
  [4, () => removeState()],
  [2, restartAgent],
  [1, restartMachine],
  [1, removeMachine],
];
const CHOICES = KINDS.flatMap(([weight, kind]) => Array<() => Promise<string>>(weight).fill(kind));

test(
  `${OPERATIONS} random operations, seed ${SEED}`,
  async () => {
    const before = files();
    const history: string[] = [];
    try {
      for (let count = 0; count < OPERATIONS; count += 1) {
        history.push(await one(CHOICES)());
        await expectWorld();
      }
      for (const { disk, borrower } of loans)
        expect(
          await outcome(operationId =>
            alone.disks.detach({ operationId, domainId: borrower.id, diskId: disk }),
          ),
        ).toBe('ok');
      loans = [];
      for (const machine of machines) while (machine.states.length > 0) await removeState(machine);
      await expectWorld();
      expect(files()).toEqual(before);
      for (const { guest } of machines) {
        expect(await guest.xml()).not.toMatch(/virtkeep:(attachment|loan|loose-layer)/);
        await guest.destroy();
        for (const path of Object.values(await guest.disks()).filter(path => path.startsWith('/')))
          await run(['qemu-img', 'check', path], { timeoutMs: 60_000 });
      }
    } catch (error) {
      process.stderr.write(`the history until then:\n${history.join('\n')}\n`);
      throw error;
    }
  },
  LONG_MS,
);
