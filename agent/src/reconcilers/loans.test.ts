import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { DomainStateCode, type EventSource, type Libvirt } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
import { type Answer, NO_OTHER_NODES } from '../other-nodes.ts';
import { LENDING_STATE } from '../snapshots/index.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { LoanReconciler } from './loans.ts';

const OWNER = '11111111-2222-4333-8444-555555555555';
const GONE = '21111111-2222-4333-8444-555555555555';
const DISK = '31111111-2222-4333-8444-555555555555';

const ownerXml = `<domain type='kvm'><name>vm</name><uuid>${OWNER}</uuid><memory>1</memory><os><type>hvm</type></os><metadata>
  <v:domain xmlns:v='urn:virtkeep:domain:1'><v:loan disk='${DISK}' borrower='${GONE}'/></v:domain></metadata></domain>`;

const idleXml = ownerXml.replace(/<v:loan .*\/>/, '');

/**
 * What the reconciler starts about an owner whose borrower is gone, and how often it had looked then.
 * @param looks the owner's definition at each look; the last one stays
 */
async function started(isActive: boolean, looks = [ownerXml]): Promise<StartOptions & { looks: number }> {
  let looked = 0;
  const state = isActive ? DomainStateCode.RUNNING : DomainStateCode.SHUTOFF;
  const owner = {
    uuid: OWNER,
    name: 'vm',
    isActive: async () => isActive,
    isPersistent: async () => true,
    state: async () => ({ state }),
    hasManagedSave: async () => false,
    xml: async () => looks[Math.min(looked, looks.length) - 1]!,
    findSnapshot: async () => null,
    currentSnapshot: async () => null,
    snapshots: async () => [],
  };
  const domains = async () => {
    looked += 1;
    return [owner];
  };
  const libvirt = { domains, domainByUuid: async () => owner, on: () => () => {} };
  const log = { info: () => {}, warn: () => {} } as unknown as Logger;
  const { promise, resolve } = Promise.withResolvers<StartOptions>();
  const reconciler = new LoanReconciler({
    link: { connected: true, get: () => libvirt as unknown as Libvirt, onChange: () => () => {} },
    runner: { draining: false, start: resolve } as unknown as OperationRunner,
    workflows: {
      ...{ zfs: {}, libvirt: () => libvirt, pools: async () => [], otherNodes: NO_OTHER_NODES },
    } as unknown as WorkflowDependencies,
    log,
    retryMs: 1,
  });
  reconciler.start();
  const options = await promise.finally(() => reconciler.stop());
  return { ...options, looks: looked };
}

test('what a look finds in the middle of a lending, and the next one does not, keeps nobody from the VMs', async () => {
  const { looks } = await started(true, [ownerXml, idleXml, ownerXml, ownerXml]);
  expect(looks).toBe(4);
});

test.each([
  ['that is off is not started while its state is merged', false, ['power']],
  ['that runs may be switched off', true, []],
])('an owner %s, and nobody else may make the borrower that is gone', async (_, isActive, power) => {
  const { locks, entities } = await started(isActive);
  expect(locks.filter(({ kind }) => kind === 'domain').map(({ id }) => id)).toEqual([OWNER, GONE]);
  expect(locks.filter(({ id, kind }) => id === OWNER && kind === 'power').map(({ kind }) => kind)).toEqual(
    power,
  );
  expect(locks.every(({ mode }) => mode === 'exclusive')).toBe(true);
  expect(entities.map(({ id }) => id)).toEqual([OWNER]);
});

describe('an instant on a device that stays', () => {
  const MINUTE_MS = 60_000;
  const stateXml = `<domainsnapshot><name>${LENDING_STATE}</name><creationTime>1</creationTime><state>shutoff</state>
    <disks><disk name='vda' snapshot='external' type='file'><source file='/pool/layer.qcow2'/></disk></disks>
    ${idleXml.replace('</metadata>', "</metadata><devices><disk type='block' device='disk'><source dev='/dev/vg/vm'/><target dev='vda'/></disk></devices>")}
    </domainsnapshot>`;
  /** What another node says. */
  let answer: Answer;
  let asked: number;
  let started: StartOptions[];
  let reconciler: LoanReconciler;
  let lifecycle: (source: EventSource) => void;

  beforeEach(() => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate'] });
    [answer, asked, started] = [{ kind: 'unknown', reason: 'n2 is away' }, 0, []];
    const state = { name: LENDING_STATE, xml: async () => stateXml };
    const owner = {
      uuid: OWNER,
      name: 'vm',
      isActive: async () => false,
      isPersistent: async () => true,
      state: async () => ({ state: DomainStateCode.SHUTOFF }),
      hasManagedSave: async () => false,
      xml: async () => idleXml,
      findSnapshot: async () => state,
      currentSnapshot: async () => null,
      snapshots: async () => [state],
    };
    const on = (event: string, listener: typeof lifecycle) => {
      if (event === 'lifecycle') lifecycle = listener;
      return () => {};
    };
    const libvirt = { domains: async () => [owner], domainByUuid: async () => owner, on };
    const whoUses = async (things: readonly unknown[]) => {
      asked += 1;
      return things.map(() => answer);
    };
    const ignore = () => {};
    const log = { info: ignore, debug: ignore, warn: ignore } as unknown as Logger;
    reconciler = new LoanReconciler({
      link: { connected: true, get: () => libvirt as unknown as Libvirt, onChange: () => () => {} },
      runner: {
        draining: false,
        start: (options: StartOptions) => started.push(options),
      } as unknown as OperationRunner,
      workflows: {
        ...{ zfs: {}, libvirt: () => libvirt, pools: async () => [], otherNodes: { whoUses }, log },
      } as unknown as WorkflowDependencies,
      log,
    });
    reconciler.start();
  });
  afterEach(async () => {
    await reconciler.stop();
    jest.useRealTimers();
  });

  /** So many minutes, with at least a look in each. */
  async function pass(minutes: number): Promise<void> {
    for (let minute = 0; minute < minutes; minute += 1) {
      const before = asked;
      await jest.advanceTimersByTimeAsync(MINUTE_MS);
      while (asked === before) await new Promise(resolve => setImmediate(resolve));
      for (let turn = 0; turn < 10; turn += 1) await new Promise(resolve => setImmediate(resolve));
    }
  }

  const hear = () => {
    answer = { kind: 'unused' };
  };
  const begun = () => started.splice(0).map(({ kind }) => kind);

  test('is tried ever more rarely, and not at all while an answer is waited for', async () => {
    await pass(14);
    expect(begun()).toEqual([]);
    await pass(46);
    expect(begun().length).toBeLessThanOrEqual(6);
    await pass(24 * 60);
    const { length } = begun();
    expect(length).toBeGreaterThanOrEqual(22);
    expect(length).toBeLessThanOrEqual(25);
  });

  test.each([
    ['the node is heard again', hear],
    ['its VM starts', () => lifecycle({ uuid: OWNER } as EventSource)],
    ['a pool is back', () => reconciler.retryNow()],
  ])('is tried at once when %s', async (_, happens) => {
    await pass(60);
    begun();
    await pass(2);
    expect(begun()).toEqual([]);
    happens();
    await pass(1);
    expect(begun()).toEqual(['keep_loans']);
  });
});
