import { expect, test } from '@jest/globals';
import { mayWrite, qemuUser } from './access.ts';

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
