import { describe, expect, test } from '@jest/globals';
import { directoryFailure, isBelow, placeIn } from './directory.ts';

const who = { directory: 'lab.test', login: 'admin', password: 'S3cret!' };
const failure = (err: string, out = '') =>
  directoryFailure({ name: 'vm' }, 'joining', who, { exitCode: 1, out, err });

describe('what a failed join means', () => {
  test.each([
    [" ! Couldn't authenticate as: admin@LAB.TEST: Preauthentication failed", 'directory_login_failed'],
    [
      "adcli: couldn't connect: Couldn't authenticate as: x@LAB.TEST: Client 'x@LAB.TEST' not found in Kerberos database",
      'directory_login_failed',
    ],
    ['Failed to join domain: failed to lookup DC info: NT_STATUS_LOGON_FAILURE', 'directory_login_failed'],
    ['realm: No such realm found: nowhere.test', 'directory_not_found'],
    ["adcli: couldn't find usable domain controller to connect to", 'directory_not_found'],
    ["realm: Couldn't join realm: Insufficient permissions to join the domain", 'guest_operation_failed'],
    ['something else', 'guest_operation_failed'],
  ])('%s', (text, key) => expect(failure(text).msgKey).toBe(key));

  test('the password is in no text', () => {
    expect(failure('bad S3cret! here').message).not.toContain('S3cret!');
  });
});

describe('where an account is', () => {
  const DN = 'CN=WEB1,OU=Servers,DC=lab,DC=test';

  test('is read from adcli', () => {
    const out = `sAMAccountName:\n WEB1$\ndistinguishedName:\n ${DN}\nuserPrincipalName:\n - not set -\n`;
    expect(placeIn({ exitCode: 0, out, err: '' })).toBe(DN);
    expect(placeIn({ exitCode: 0, out: `distinguishedName: ${DN}\n`, err: '' })).toBe(DN);
    expect(placeIn({ exitCode: 1, out, err: '' })).toBeUndefined();
    const err = ` * Using domain name: lab.test\n * Found computer account for WEB1$ at: ${DN}\n`;
    expect(placeIn({ exitCode: 0, out: 'sAMAccountName:\n WEB1$\n', err })).toBe(DN);
    expect(placeIn({ exitCode: 0, out: 'sAMAccountName:\n WEB1$\n', err: '' })).toBeUndefined();
  });

  test('is compared as the directory does', () => {
    expect(isBelow(DN, 'ou=servers, dc=LAB,dc=test')).toBe(true);
    expect(isBelow(DN, 'OU=Other,DC=lab,DC=test')).toBe(false);
    expect(isBelow(DN, 'DC=lab,DC=test')).toBe(false);
    expect(isBelow('CN=A\\,B,OU=Servers,DC=lab', 'OU=Servers,DC=lab')).toBe(true);
  });
});
