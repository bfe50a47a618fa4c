/**
 * A revert that is undone again and again, since libvirt cannot write down what a state is to be told: the guest that it stopped
 * runs again once, and from then on its power is its user's, also when the agent is killed in between.
 */
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { DomainXml, ErrorCode } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { JournaledEffects } from '../../agent/src/operations/effects.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import type { Answer, Use } from '../../agent/src/other-nodes.ts';
import { withOverlays, withSources } from '../../agent/src/snapshots/state-xml.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { type Machine, refuse } from './scripted-machine.ts';
import { makeState } from './stories/perform.ts';
import { makeVm } from './stories/vm.ts';
import { silent, World } from './world.ts';

const operationId = newId();
let world: World;
let journal: Journal;
let effects: JournaledEffects;
let machine: Machine;
/** Calls that libvirt refuses. */
let refused: Set<string>;
let formerOverlays: Record<string, string>;
let formerDisk: string | undefined;
/** What the other nodes say of the VM. */
let answer: Answer;
let warnings: string[];

function startAgent(): void {
  journal = new Journal(join(world.root, 'journal.db'));
  const otherNodes = { whoUses: async (things: readonly unknown[]) => things.map(() => answer) };
  const undo = undoEffects({ ...world.dependencies, otherNodes });
  const warn = (text: string) => void warnings.push(text);
  effects = new JournaledEffects(journal, operationId, undo, { log: silent, warn });
}

function killAgent(): void {
  journal.close();
  startAgent();
}

const pass = () =>
  effects.undoAll(
    () => AbortSignal.timeout(60_000),
    () => {},
  );
const left = () => journal.effects(operationId).map(({ effect }) => effect.type);

beforeEach(async () => {
  world = new World();
  [refused, answer, warnings] = [new Set(), { kind: 'unused' }, []];
  world.scripted.reach = async point => {
    if (refused.has(point.replace(/\.\w+$/, ''))) throw refuse(ErrorCode.OPERATION_FAILED, `${point} fails`);
  };
  ({ machine } = await makeVm(world, { running: true }));
  await makeState(world, machine.uuid, 's');
  startAgent();
  const message = Operation.fromPartial({ id: operationId, state: OperationState.RUNNING });
  journal.insertOperation({ message, fingerprint: '', locks: [], committed: false });
  const overlays = [{ targetDev: 'vda', path: await world.disk('vda.reverted') }];
  formerOverlays = { vda: await world.disk('vda.former') };
  formerDisk = parseDomain(machine.config!).disks[0]!.path;
  const domain = await world.scripted.libvirt.domainByUuid(machine.uuid);
  effects.begin(
    {
      ...{ type: 'revert', domainId: machine.uuid, state: 's', overlays, formerOverlays },
      formerDefinition: await domain.xml(DomainXml.INACTIVE),
      ...{ formerCurrent: null, wasRunning: true },
    },
    'failure',
  );
  world.scripted.powerOff(machine);
  const source = { path: overlays[0]!.path, format: 'qcow2', block: false };
  machine.config = withSources(machine.config!, { vda: source });
  refused.add('virDomainSnapshotCreateXML');
});
afterEach(() => {
  journal.close();
  world.remove();
});

test('a guest that its user has shut down meanwhile stays off', async () => {
  expect(await pass()).toHaveLength(1);
  expect(machine.live).not.toBeNull();
  world.scripted.powerOff(machine);
  await pass();
  expect(machine.live).toBeNull();
  killAgent();
  await pass();
  expect(machine.live).toBeNull();
  refused.clear();
  expect(await pass()).toEqual([]);
  expect([left(), machine.live]).toEqual([[], null]);
});

test.each(['virDomainCreateWithFlags', 'virDomainDefineXMLFlags'])(
  'it is started when the agent was killed at %s',
  async name => {
    const { reach } = world.scripted;
    const killed = new Promise<void>(resolve => {
      world.scripted.reach = async point => {
        if (point !== `${name}.${name.includes('Create') ? 'before' : 'after'}`) return;
        resolve();
        await new Promise(() => {});
      };
    });
    void pass();
    await killed;
    world.scripted.reach = reach;
    killAgent();
    expect(machine.live).toBeNull();
    await pass();
    expect(machine.live).not.toBeNull();
    world.scripted.powerOff(machine);
    await pass();
    expect(machine.live).toBeNull();
  },
);

test('where the journal has no room for it the agent remembers it, and goes on', async () => {
  journal.amendEffect = () => {
    throw new VirtkeepError('journal_failed', { reason: 'full' });
  };
  await pass();
  world.scripted.powerOff(machine);
  refused.clear();
  expect(await pass()).toEqual([]);
  expect([left(), machine.live]).toEqual([[], null]);
});

test('a state that was not told of its overlay holds nothing up, though libvirt would not take it again', async () => {
  machine.states.set('s', withOverlays(machine.states.get('s')!, formerOverlays));
  expect(await pass()).toEqual([]);
  expect([left(), machine.live === null]).toEqual([[], false]);
});

describe('a guest that another node may have started since', () => {
  const by = (use: Partial<Use>): Answer => ({
    kind: 'used',
    by: { nodeName: 'n2', domainId: machine.uuid, domainName: 'vm', ...use },
  });
  const disk = () => parseDomain(machine.config!).disks[0]!.path;

  test('is not started here while it runs there, nor when it has ended there', async () => {
    answer = by({ active: true });
    expect(await pass()).toHaveLength(1);
    expect([machine.live, disk()]).toEqual([null, formerDisk]);
    expect(warnings).toEqual([expect.stringMatching(/^The domain was not started again: .* on n2/)]);
    answer = { kind: 'unused' };
    killAgent();
    refused.clear();
    expect(await pass()).toEqual([]);
    expect([left(), machine.live, warnings.length]).toEqual([[], null, 1]);
  });

  test('is not started where it did not run last', async () => {
    answer = by({});
    await pass();
    expect([machine.live, warnings.length]).toEqual([null, 1]);
  });

  test.each<[string, () => Answer]>([
    ['only defined there', () => by({ lastRanHere: true })],
    ['a thin clone of it there', () => by({ domainId: newId(), active: true })],
    ['not known about', () => ({ kind: 'unknown', reason: 'n2 is away' })],
  ])('is started when it is %s', async (_what, said) => {
    answer = said();
    await pass();
    expect([machine.live === null, warnings]).toEqual([false, []]);
  });
});
