import { expect, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { createLogger } from '@virtkeep/shared/log';
import { ZfsDriver } from '../../zfs/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { removeSnapshotWorkflow } from './remove.ts';

const ID = '11111111-2222-4333-8444-555555555555';

/** A domain that is off, with the rest of a deleted state whose layer is gone by now. */
function node(): Libvirt {
  let own = `<removed-state id='s'/><loose-layer target='vda' path='/nowhere/a.qcow2' overlay='yes'/>`;
  const domain = {
    uuid: ID,
    name: 'vm',
    xml: async () =>
      `<domain type='qemu'><name>vm</name><uuid>${ID}</uuid><metadata><v:domain xmlns:v='urn:virtkeep:domain:1'>${own.replaceAll(/<(?=\w)/g, '<v:')}</v:domain></metadata></domain>`,
    isActive: async () => false,
    isPersistent: async () => true,
    hasManagedSave: async () => false,
    currentSnapshot: async () => null,
    snapshots: async () => [],
    setMetadata: async ({ value }: { value: string | null }) => {
      own = value?.replace(/^<domain[^>]*>|<domain[^>]*\/>/, '').replace('</domain>', '') ?? '';
    },
  } as unknown as Domain;
  return {
    domain: () => domain,
    domainByUuid: async () => domain,
    domains: async () => [domain],
  } as unknown as Libvirt;
}

test('a deletion that succeeded leaves nothing to wait for the pools of the VM', async () => {
  const events: string[] = [];
  const connection = node();
  const dependencies = {
    libvirt: () => connection,
    zfs: new ZfsDriver(),
    mergeBandwidthMiB: 0,
    nvramDirectory: '/nowhere',
    log: createLogger('test', 'error'),
  } as unknown as WorkflowDependencies;
  const context = {
    signal: new AbortController().signal,
    log: dependencies.log,
    progress: { total: () => {}, done: () => {}, message: () => {} },
    step: (_name: string, work: () => Promise<unknown>) => work(),
    warn: () => {},
    commit: () => events.push('commit'),
    effects: {
      begin: ({ type }: { type: string }, when: string) => {
        events.push(`${type} ${when}`);
        return { keep: () => events.push('kept'), undo: async () => {} };
      },
    },
  } as unknown as OperationContext;
  await removeSnapshotWorkflow(dependencies, {
    domainId: ID,
    snapshotId: 's',
    bandwidth: 0n,
    operationId: '',
  })(context);
  expect(events).toEqual(['removed_state always', 'commit', 'kept']);
});
