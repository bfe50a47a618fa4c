// A VM without disks out of a domain XML and an OVF descriptor in a pool's backups, by an agent that is killed and cancelled at each step.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { DESCRIPTORS } from '../../../agent/src/ovf/test-kit.ts';
import { CONFIG_RESTORE_STEPS } from '../../../agent/src/workflows/config-restore/config-restore.ts';
import { AgentAlone, INTERRUPTED, lostAnswer, momentsOf, type Picture } from '../../e2e/agent-alone.ts';
import { Guest } from '../../lab/guest.ts';

const MAC = '52:54:00:aa:bb:cc';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;

beforeAll(async () => {
  alone = await AgentAlone.start();
  const devices = `<interface type='user'><mac address='${MAC}'/></interface>`;
  guest = await alone.world.defineTiny({ name: 'web', idle: true, devices });
  const backups = join(alone.world.node.pool(1).path, 'backups');
  mkdirSync(join(backups, 'appliance'), { recursive: true });
  writeFileSync(join(backups, 'web.xml'), await guest.xml(true));
  writeFileSync(join(backups, 'appliance', 'web.ovf'), DESCRIPTORS['vmware-bios-lsilogic']!);
  writeFileSync(join(backups, 'two.ovf'), DESCRIPTORS['cluster-of-two']!);
  writeFileSync(join(backups, 'broken.ovf'), '<Envelope/>');
  before = await alone.picture(guest);
});
afterAll(() => alone?.stop());

const fileOf = (filename: string) => ({ poolId: alone.world.node.pool(1).uuid, filename });

async function start(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  await alone.restores
    .startConfig({ operationId, file: fileOf(filename), domainId: newId(), ...request })
    .catch(lostAnswer);
  return operationId;
}

async function restored(filename: string, request: object = {}) {
  const operation = await alone.heard(await start(filename, request));
  const { name } = resultOf(operation, 'configRestore');
  return { operation, name, xml: await new Guest(alone.world.node, name).xml(true) };
}

const undefine = (name: string) => alone.world.node.virsh('undefine', name, '--nvram');

describe('what is restored', () => {
  test('of a domain XML: a new VM beside the original, without its disks', async () => {
    const { name, xml, operation } = await restored('web.xml');
    expect(name).toBe('web_restored');
    expect(xml).not.toContain("device='disk'");
    expect(xml).not.toContain(MAC);
    expect(xml).not.toContain(await guest.uuid());
    expect(operation.warnings).toContainEqual(expect.stringMatching(/^Disk vda: .*is not attached\.$/));
    await undefine(name);
  });

  test('with addresses that stay, unless a VM has them', async () => {
    const taken = await restored('web.xml', { keepMacs: true, name: 'first' });
    expect(taken.xml).not.toContain(MAC);
    expect(taken.operation.warnings).toContainEqual(
      expect.stringContaining(`MAC address ${MAC}: A VM has it`),
    );
    const free = await restored('appliance/web.ovf', { keepMacs: true, name: 'second' });
    expect(free.xml).toContain('00:50:56:aa:bb:cc');
    for (const name of ['first', 'second']) await undefine(name);
  });

  test('of an OVF descriptor: as show tells', async () => {
    const shown = await alone.backups.show({ file: fileOf('appliance/web.ovf') });
    expect(shown).toMatchObject({
      configuration: { name: 'web', cpuCount: 4, memoryCount: 4096n, disks: [{ excluded: true }] },
      signature: { trust: 'foreign' },
    });
    const { name, xml, operation } = await restored('appliance/web.ovf');
    expect(name).toBe('web_restored');
    expect(xml).not.toContain("device='disk'");
    expect(operation.warnings).toEqual(shown.warnings.map(({ text }) => text));
    await undefine(name);
  });

  test('a network that the node has', async () => {
    const file = join(alone.world.dir, 'net.xml');
    writeFileSync(file, "<network><name>lan</name><forward mode='none'/></network>");
    await alone.world.node.virsh('net-define', file);
    const { name, xml } = await restored('appliance/web.ovf', { networks: { LAN: 'lan' } });
    expect(xml).toContain("<source network='lan'/>");
    await undefine(name);
    await alone.world.node.virsh('net-undefine', 'lan');
  });

  test('one VM of several, when it is named', async () => {
    await expect(alone.backups.show({ file: fileOf('two.ovf') })).rejects.toThrow(/describes several VMs/);
    const operation = await alone.ended(await start('two.ovf'));
    expect(operation.error?.msgKey).toBe('ovf_system_ambiguous');
  });
});

test('a descriptor that cannot be read is refused', async () => {
  await expect(alone.backups.show({ file: fileOf('broken.ovf') })).rejects.toThrow(/another version/);
});

describe.each(['web.xml', 'appliance/web.ovf'])('%s', filename => {
  test.each(momentsOf(CONFIG_RESTORE_STEPS))('kill -9 of the agent at %s', async moment => {
    const operation = await alone.killedAt(`config_restore.${moment}`, () => start(filename));
    expect(operation).toMatchObject(INTERRUPTED);
    expect(await alone.picture(guest)).toEqual(before);
  });

  test.each(['check.after', 'define.before', 'define.after'])('cancel at %s', async moment => {
    const operation = await alone.canceledAt(`config_restore.${moment}`, () => start(filename));
    expect(operation.state).toBe(OperationState.CANCELED);
    expect(await alone.picture(guest)).toEqual(before);
  });
});
