import { describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import { directoryFailure, directoryOf, isBelow, placeIn, provenAgain } from './directory.ts';
import { familyOf } from './families.ts';
import type { Guest, ProgramResult } from './guest.ts';

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

describe('after its restart', () => {
  const canceler = new AbortController();
  const context = {
    signal: canceler.signal,
    step: (_name: string, work: () => Promise<unknown>) => work(),
  } as unknown as OperationContext;
  const request = { domainId: 'x', directory: 'lab.test', login: 'a', password: 'b', computerName: '' };
  /** A Debian guest that answers so to the question whether the directory takes it. */
  const answering = (...answers: (ProgramResult | Error)[]) =>
    ({
      name: 'vm',
      osInfo: async () => ({ id: 'debian' }),
      run: async () => {
        const answer = answers.length > 1 ? answers.shift()! : answers[0]!;
        if (answer instanceof Error) throw answer;
        return answer;
      },
    }) as unknown as Guest;
  const unreachable = { exitCode: 3, out: '', err: "adcli: couldn't find a domain controller" };
  const proven = (guest: Guest, patienceMs: number) =>
    provenAgain(context, guest, false, { ...request, unit: [], restart: true }, patienceMs);

  test('a guest is asked until its network is up', async () => {
    const silent = new VirtkeepError('guest_agent_silent', { domain: 'vm' });
    const guest = answering(unreachable, silent, { exitCode: 0, out: '', err: '' });
    expect(await proven(guest, 60_000)).toEqual([]);
  });

  test('one that is not taken is told', async () => {
    expect(await proven(answering(unreachable), 0)).toEqual([
      "After its restart: adcli: couldn't find a domain controller",
    ]);
  });

  test('a cancel ends the asking', async () => {
    const asked = proven(answering(unreachable), 60_000);
    canceler.abort();
    await expect(asked).rejects.toMatchObject({ msgKey: 'canceled' });
  });
});

describe('the directory of a guest', () => {
  const busy = { exitCode: 1, out: '', err: "realm: Couldn't connect to realm service: Timeout was reached" };
  const told = { exitCode: 0, out: 'lab.test\n', err: '' };
  const asked = (family: string, ...answers: ProgramResult[]) => {
    const run = async () => (answers.length > 1 ? answers.shift()! : answers[0]!);
    return directoryOf({ name: 'vm', run } as unknown as Guest, familyOf(family, '')!, 'joining');
  };

  test('is asked again when the service that knows it did not start in time', async () => {
    expect(await asked('debian', busy, told)).toBe('lab.test');
    expect(await asked('debian', { ...told, out: '' })).toBeNull();
  });

  test('is not taken for none when that cannot be told', async () => {
    await expect(asked('debian', busy)).rejects.toMatchObject({
      msgKey: 'guest_operation_failed',
      params: { reason: expect.stringContaining('Timeout was reached') },
    });
    expect(await asked('altlinux', { ...busy, err: '' })).toBeNull();
  });
});
