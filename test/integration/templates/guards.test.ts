// What a template with thin clones refuses, through the services, and that it is itself again without them.
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { SnapshotServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import { snapshotService } from '../../../agent/src/grpc/snapshot-service.ts';
import { templateService } from '../../../agent/src/grpc/template-service.ts';
import type { Guest } from '../../lab/guest.ts';
import { CALL, InventoryLab } from '../inventory/lab.ts';

let lab: InventoryLab;
let template: Guest;
let id: string;
let cloneId: string;
let snapshots: SnapshotServiceImplementation;

beforeAll(async () => {
  lab = await InventoryLab.start();
  snapshots = snapshotService(lab.runner, lab.workflows);
  template = await lab.world.defineTiny({ name: 'golden', dataDisks: [{ sizeMiB: 16 }] });
  id = await template.uuid();
  await lab.domain(id);
});
afterAll(() => lab?.stop());

const mark = (isTemplate: boolean) =>
  lab.domains.update({ domainId: id, template: isTemplate, description: undefined }, CALL);
const state = () =>
  lab.ended(
    snapshots.create(
      {
        operationId: newId(),
        domainId: id,
        name: 's1',
        description: '',
        memory: false,
        requireConsistency: false,
        allowNetworkLayers: false,
      },
      CALL,
    ) as Promise<unknown>,
  );
const refused = { msgKey: 'template_has_clones' };

test('a running domain is not made a template', async () => {
  await template.start();
  await expect(mark(true)).rejects.toMatchObject({ msgKey: 'power_state_conflict' });
  await template.destroy();
  expect(await mark(true)).toMatchObject({ template: true });
});

test('with a thin clone: no unmarking, no saved state, no removal', async () => {
  const service = templateService(lab.runner, lab.workflows);
  cloneId = newId();
  const request = { operationId: newId(), domainId: id, newDomainId: cloneId, name: 'thin', thin: true };
  await lab.ended(service.clone({ ...request, poolId: '', description: '' }, CALL) as Promise<unknown>);
  const shown = await lab.domain(cloneId);
  expect(shown.parentId).toBe(id);
  await expect(mark(false)).rejects.toMatchObject(refused);
  await expect(mark(false)).rejects.toThrow(/thin/);
  await expect(state()).rejects.toMatchObject(refused);
  await expect(lab.remove(id)).rejects.toMatchObject(refused);
  await expect(lab.remove(id, { full: true })).rejects.toMatchObject(refused);
});

test('states made by other means are neither deleted nor reverted to', async () => {
  await lab.world.node.virsh('snapshot-create-as', 'golden', 'foreign', '--disk-only');
  const { snapshots: found } = await snapshots.list({ domainId: id }, CALL);
  const snapshotId = found![0]!.id!;
  const remove = snapshots.remove({ operationId: newId(), domainId: id, snapshotId, bandwidth: 0n }, CALL);
  await expect(lab.ended(remove as Promise<unknown>)).rejects.toMatchObject(refused);
  const revert = snapshots.revert({ operationId: newId(), domainId: id, snapshotId }, CALL);
  await expect(lab.ended(revert as Promise<unknown>)).rejects.toMatchObject(refused);
});

test('without clones it can be unmarked and marked again, and keeps its version', async () => {
  await lab.remove(cloneId, { full: true });
  expect(await mark(false)).toMatchObject({ template: false, templateVersion: 1 });
  expect(await mark(true)).toMatchObject({ template: true, templateVersion: 1 });
});
