import { expect, test } from '@jest/globals';
import { guestPermission } from './guest-classes.ts';

test.each([
  ['guest-get-osinfo', 'guest.read'],
  ['guest-get-memory-blocks', 'guest.read'],
  ['guest-ping', 'guest.read'],
  ['guest-fsfreeze-status', 'guest.read'],
  ['guest-file-read', 'guest.file'],
  ['guest-file-open', 'guest.file'],
  ['guest-shutdown', 'guest.power'],
  ['guest-suspend-ram', 'guest.power'],
  ['guest-fsfreeze-thaw', 'guest.power'],
  ['guest-exec', 'guest.execute'],
  ['guest-exec-status', 'guest.execute'],
  ['guest-set-user-password', 'guest.execute'],
  ['guest-ssh-get-authorized-keys', 'guest.execute'],
  ['guest-ssh-add-authorized-keys', 'guest.execute'],
  ['guest-pings', 'guest.execute'],
  ['block-commit', 'guest.execute'],
  ['constructor', 'guest.execute'],
])('%s is of the class %s', (command, permission) => {
  expect(guestPermission(command)).toBe(permission);
});
