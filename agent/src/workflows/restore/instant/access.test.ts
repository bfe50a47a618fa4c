import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import type { OperationContext } from '../../context.ts';
import type { Effect } from '../../effect.ts';
import { allowReading, mayWrite, qemuUser, restoreAccess } from './access.ts';

const host = (labels: string) => `<capabilities><host><secmodel><model>apparmor</model><doi>0</doi>
  <baselabel type='kvm'>confined</baselabel></secmodel><secmodel><model>dac</model><doi>0</doi>${labels}</secmodel></host></capabilities>`;

test('the user that VMs run as', () => {
  expect(qemuUser(host("<baselabel type='kvm'>+64055:+109</baselabel>"))).toEqual({ uid: 64055, gid: 109 });
  expect(qemuUser('<capabilities/>')).toBeNull();
  expect(qemuUser(host(''))).toBeNull();
});

test.each([
  ['its own file', { uid: 5, gid: 0, mode: 0o400 }, true],
  ["another's", { uid: 0, gid: 0, mode: 0o644 }, false],
  ['its group may read', { uid: 0, gid: 6, mode: 0o640 }, false],
  ['its group may write', { uid: 0, gid: 6, mode: 0o660 }, true],
  ['everybody may write', { uid: 0, gid: 0, mode: 0o602 }, true],
])('may it write? %s', (_name, file, expected) => {
  expect(mayWrite(file, { uid: 5, gid: 6 })).toBe(expected);
});

test('an archive that only its owner may read is lent to the group of QEMU, and given back', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'vk-access-'));
  const path = join(directory, 'a.tar');
  writeFileSync(path, '', { mode: 0o600 });
  const { uid, gid } = statSync(path);
  const effects: Effect[] = [];
  const context = {
    effects: { begin: (effect: Effect) => effects.push(effect) },
  } as unknown as OperationContext;
  const libvirtFor = (user: number) =>
    ({ capabilities: async () => host(`<baselabel type='kvm'>+${user}:+${gid}</baselabel>`) }) as Libvirt;
  await allowReading(context, libvirtFor(uid + 1), path, 'a.tar');
  expect(statSync(path).mode & 0o777).toBe(0o640);
  await allowReading(context, libvirtFor(uid + 1), path, 'a.tar');
  expect(effects).toEqual([{ type: 'archive_access', path, gid, mode: 0o600 }]);
  await restoreAccess({ path, gid, mode: 0o600 });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  chmodSync(path, 0o666);
  await expect(allowReading(context, libvirtFor(uid + 1), path, 'a.tar')).rejects.toMatchObject({
    msgKey: 'instant_restore_unsupported',
  });
  rmSync(directory, { recursive: true });
  await restoreAccess({ path, gid, mode: 0o600 });
});
