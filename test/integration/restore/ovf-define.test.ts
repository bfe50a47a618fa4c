// What OVF descriptors become is taken by a real libvirt, after it has held it against its schema. Beside the project's own these are public ones, where
// a folder of them is there (see agent/src/ovf/samples.test.ts).
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { serializeXml } from '../../../agent/src/domain-xml/index.ts';
import { applianceOf, readOvf, systemsOf } from '../../../agent/src/ovf/index.ts';
import { bytes, DESCRIPTORS } from '../../../agent/src/ovf/test-kit.ts';
import { planAppliance } from '../../../agent/src/workflows/config-restore/plan.ts';
import { defineGuest } from '../../lab/guest.ts';
import { startWorld, type World } from '../../lab/world.ts';

const FOLDER =
  process.env.VIRTKEEP_OVF_SAMPLES ?? join(import.meta.dirname, '../../../../shared/fixtures/ovf');
const SAMPLES = existsSync(FOLDER) ? readdirSync(FOLDER).filter(name => /\.ovf$/i.test(name)) : [];
const ALL: [string, Uint8Array][] = [
  ...Object.entries(DESCRIPTORS).map(([name, text]): [string, Uint8Array] => [name, bytes(text)]),
  ...SAMPLES.map((name): [string, Uint8Array] => [name, readFileSync(join(FOLDER, name))]),
];
const FACTS = { networks: ['default'], bridges: [], hasKvm: false };

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world?.stop());

/** The VMs of a descriptor, as a restore with disks would define them; none of one that is refused. */
function definitionsOf(name: string, text: Uint8Array, virtio: boolean): string[] {
  try {
    const envelope = readOvf(text, name);
    return systemsOf(envelope).map(({ id }) => {
      const appliance = applianceOf(envelope, { system: id });
      const pathOf = (index: number) => join(world.node.pool(0).path, `${index}.qcow2`);
      const { root, brought } = planAppliance(appliance, { networks: {}, virtio }, FACTS, { pathOf });
      expect(brought).toHaveLength(appliance.disks.filter(({ fault }) => fault === null).length);
      return serializeXml(root);
    });
  } catch (error) {
    if (hasKey(error, 'ovf_version_unsupported', 'ovf_invalid')) return [];
    throw error;
  }
}

test.each(ALL)('%s is defined', async (name, text) => {
  for (const virtio of [false, true])
    for (const [index, xml] of definitionsOf(name, text, virtio).entries()) {
      const own = xml.replace(/<name>[^<]*<\/name>/, `<name>vm${index}</name>`);
      const guest = await defineGuest(world.node, `vm${index}`, own, ['--validate']);
      expect(await guest.xml(true)).toContain('<on_reboot>');
      await world.node.virsh('undefine', guest.name, '--nvram');
    }
});
