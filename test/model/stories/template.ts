/** Templates: clones of one, and its change. */
import { expect } from '@jest/globals';
import { CloneDomainRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { changeTemplateWorkflow } from '../../../agent/src/workflows/template/change.ts';
import { cloneWorkflow } from '../../../agent/src/workflows/template/clone.ts';
import type { BuildStory } from '../undo-model.ts';
import { expectedContent, type World } from '../world.ts';
import { perform } from './perform.ts';
import { isUndone, lives, makeVm, TARGETS, type Vm, vmOf } from './vm.ts';

const makeTemplate = (world: World): Promise<Vm> =>
  makeVm(world, { name: 'template', running: false, metadata: { template: true, templateVersion: 1 } });

const cloneRequest = (domainId: string, newDomainId: string, name: string, thin: boolean) =>
  CloneDomainRequest.fromPartial({ domainId, newDomainId, name, thin });

async function makeThinClone(world: World, { machine }: Vm, name: string): Promise<Vm> {
  const id = newId();
  await perform(world, () => cloneWorkflow(world.dependencies, cloneRequest(machine.uuid, id, name, true)));
  return vmOf(world, world.scripted.machines.get(id)!);
}

export const clone: BuildStory = async (world, random) => {
  const thin = random(2) === 1;
  const original = thin ? await makeTemplate(world) : await makeVm(world, { running: false });
  await original.write(0, 1);
  const then = await original.view();
  let now = then;
  const files = world.files();
  const id = newId();
  const made = () => world.scripted.machines.get(id);
  return {
    kind: 'clone_domain',
    points: 40,
    workflow: () => cloneWorkflow(world.dependencies, cloneRequest(original.machine.uuid, id, 'clone', thin)),
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      expect(await original.view()).toEqual(now);
      if (committed) expect(await vmOf(world, made()!).view()).toEqual(then);
    },
    async settled(committed) {
      expect(made() !== undefined).toBe(committed);
      expect(world.files()).toHaveLength(files.length + (committed ? 2 : 0));
    },
    async life() {
      if (thin) return;
      await lives(original, world, random);
      now = await original.view();
    },
  };
};

export const changeTemplate: BuildStory = async world => {
  const template = await makeTemplate(world);
  await template.write(0, 1);
  const [changed, other] = [
    await makeThinClone(world, template, 'changed'),
    await makeThinClone(world, template, 'other'),
  ];
  await changed.write(1, 2);
  const family = [template, changed, other];
  const looks = async (vms: Vm[]) => Promise.all(vms.map(vm => vm.view()));
  let before = await looks(family);
  /** What the clone that is not changed writes, by other means. */
  const written: [number, number][] = [];
  const after = (own: [number, number][] = []) =>
    TARGETS.map(() => expectedContent([[0, 1], [1, 2], ...own]));
  const files = world.files();
  const ids = family.map(({ machine }) => machine.uuid);
  const isThere = ({ machine }: Vm) => world.scripted.machines.has(machine.uuid);
  return {
    kind: 'change_template',
    points: 290,
    workflow: () => changeTemplateWorkflow(world.dependencies, { operationId: '', domainId: ids[1]! }, ids),
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      if (!committed) expect(await looks(family)).toEqual(before);
    },
    async settled(committed) {
      for (const { machine } of family.filter(isThere)) {
        const { template: isTemplate, templateVersion, parent } = parseDomain(machine.config!).metadata;
        expect(isTemplate ? templateVersion : parent!.version).toBe(committed ? 2 : 1);
      }
      if (committed) {
        expect(await looks([template, changed])).toEqual([after(), after()]);
        // as every clone of the new version, with what it wrote since
        const since = [...written, null].map((_, from) => after(written.slice(from)));
        if (isThere(other)) expect(since).toContainEqual(await other.view());
      }
      if (family.every(isThere)) expect(world.files()).toEqual(files);
    },
    async life(random) {
      const { machine } = other;
      if (!isThere(other)) return;
      if (random(3) === 0) {
        world.scripted.machines.delete(machine.uuid);
        return;
      }
      // kept until the change is final, gone then as what every clone has
      const [block, byte] = [40 + random(20), 1 + random(250)];
      await world.scripted.start(machine);
      await other.write(block, byte);
      world.scripted.powerOff(machine);
      written.push([block, byte]);
      before = await looks(family);
    },
  };
};
