import { describe, expect, test } from '@jest/globals';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { directoryOf, joinDirectory, leaveDirectory, provenAgain } from './directory.ts';
import { directoryFailure, isBelow, leaveRefused, placeIn } from './directory-answers.ts';
import type { GuestOperations } from './domain.ts';
import { familyOf } from './families.ts';
import type { Guest, Program, ProgramResult } from './guest.ts';

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
    expect(isBelow('CN=A ,\tOU=My  Servers , DC=lab', 'OU=My  Servers,DC=lab')).toBe(true);
  });

  test('is found at once, or not, in whatever a guest says', () => {
    const err = `${'Found computer account for '.repeat(400_000)}\nFound computer account for X at: ${DN}\n`;
    expect(placeIn({ exitCode: 0, out: '', err })).toBe(DN);
    expect(isBelow(`CN=A${' '.repeat(1_000_000)}B,${DN}`, DN)).toBe(true);
  });
});

describe('why a guest is not to be taken out', () => {
  const refused = (err: string) =>
    leaveRefused({ name: 'vm' }, 'leaving', who, { exitCode: 1, out: '', err });

  test('is not that its account is gone already', () => {
    expect(refused('adcli: No computer account for WEB1$ exists')).toBeUndefined();
    expect(refused('adcli: The computer account for WEB1$ does not exist')).toBeUndefined();
    expect(refused('adcli: something else')?.msgKey).toBe('guest_operation_failed');
  });

  test('is told at once, whatever a guest says before', () => {
    const words = 'account for '.repeat(200_000);
    expect(refused(`${words}\nadcli: No computer account for WEB1$ exists`)).toBeUndefined();
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
    provenAgain(context, guest, { ...request, unit: [], restart: true, onWindows: false }, patienceMs);

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

describe('a guest of a family', () => {
  const REQUEST = {
    ...{ domainId: 'd', directory: 'lab.test', login: 'admin', password: 'S3cret!' },
    ...{ computerName: '', unit: [], restart: false },
  };
  /** What programs answer, or what becomes of the question, by a part of their line; others succeed and say nothing. */
  type Script = Record<string, ProgramResult | string | Error>;
  const failed = (err: string): ProgramResult => ({ exitCode: 1, out: '', err });

  /** What is asked for beyond a join under the present name, and who is told of each program, and of other commands, before. */
  interface Wish {
    install?: boolean;
    computerName?: string;
    restart?: boolean;
    signal?: AbortSignal;
    seen?: (line: string) => unknown;
  }

  /** Runs a workflow in a guest. @returns its result or the error's key, what was run, and what is declared at its end */
  async function inGuest(
    id: string,
    script: Script,
    work: 'join' | 'leave',
    { install, signal = new AbortController().signal, seen, ...named }: Wish = {},
  ) {
    const lines: string[] = [];
    const effects: string[] = [];
    const told = new Set<Effect>();
    const run = async ({ path, args, input }: Program, own: AbortSignal) => {
      throwIfAborted(own);
      const line = [path, ...args].join(' ');
      lines.push(line);
      seen?.(line);
      throwIfAborted(own);
      expect(line).not.toContain('S3cret!');
      if (/apt-get|dpkg|rpm|dnf/.test(line)) expect(input).toBeUndefined();
      const answer = script[Object.keys(script).find(part => line.includes(part)) ?? ''] ?? '';
      if (answer instanceof Error) throw answer;
      return typeof answer === 'string' ? { exitCode: 0, out: answer, err: '' } : answer;
    };
    const guestOf = (own: AbortSignal) => ({
      ...{
        name: 'vm',
        osInfo: async () => ({ id }),
        command: async (name: string) => ({ [name]: seen?.(name) }),
      },
      run: (program: Program) => run(program, own),
    });
    const domain = {
      ...{ name: 'vm', uuid: 'd', isActive: async () => true },
      xml: async () => "<domain type='kvm'><name>vm</name><uuid>d</uuid><os><type>hvm</type></os></domain>",
    };
    const operations = {
      libvirt: () => ({ domainByUuid: async () => domain }),
      changed: () => {},
      openGuest: (_domain: unknown, _name: string, own: AbortSignal) => guestOf(own),
    } as unknown as GuestOperations;
    let result: unknown;
    const context = {
      signal,
      step: async (_name: string, inner: () => Promise<unknown>) => {
        throwIfAborted(signal);
        return inner();
      },
      warn: () => {},
      progress: { message: () => {} },
      effects: {
        begin: (effect: Effect) => {
          effects.push(effect.type);
          told.add(effect);
          return { keep: () => told.delete(effect) };
        },
      },
      commit: (value: unknown) => {
        throwIfAborted(signal);
        told.clear();
        result = value;
      },
    } as unknown as OperationContext;
    const workflow =
      work === 'join'
        ? joinDirectory(operations, { ...REQUEST, ...named, installPackages: install })
        : leaveDirectory(operations, { ...REQUEST, ...named, directory: '' });
    await workflow(context).catch((error: VirtkeepError) => {
      result = [error.msgKey, error.params.reason ?? error.params.missing ?? ''];
    });
    return { result, lines, effects, told: [...told] };
  }

  const has = (lines: string[], part: string) => lines.some(line => line.includes(part));
  const ALT: Script = {
    'uname -n': 'WEB1\n',
    'net ads search': 'distinguishedName: CN=WEB1,CN=Computers,DC=lab,DC=test\n',
    'getent ahosts': '10.0.0.1 STREAM lab.test\n',
  };

  test('Alt joins, proves and leaves with what its list brings: no adcli', async () => {
    const script: Script = { ...ALT };
    const status = { 'system-auth status': 'local\n' };
    const joining = await inGuest('altlinux', { ...script, ...status, 'write ad': '' }, 'join');
    // it says "local" afterwards, too, so that this is as far as it gets
    expect(joining.result).toEqual(['guest_operation_failed', 'it is not in lab.test afterwards']);
    const leaving = await inGuest(
      'altlinux',
      { ...script, 'system-auth status': 'ad LAB.TEST WEB1 LAB\n' },
      'leave',
    );
    expect(leaving.result).toEqual(['guest_operation_failed', 'it still is in LAB.TEST']);
    for (const { lines } of [joining, leaving]) expect(has(lines, 'adcli')).toBe(false);
    expect(has(leaving.lines, 'net ads leave')).toBe(true);
  });

  const DPKG = (...names: string[]) => names.map(name => `${name} installed\n`).join('');

  test('leaving needs neither sssd nor what else only a join needs', async () => {
    const left: Script = {
      'dpkg-query': DPKG('adcli', 'realmd', 'polkitd'),
      'realm list': 'lab.test\n',
      'uname -n': 'web1\n',
    };
    const { result, lines } = await inGuest('debian', left, 'leave');
    expect([result, has(lines, 'realm leave')]).toEqual([
      ['guest_operation_failed', 'it still is in lab.test'],
      true,
    ]);
    const bare = await inGuest('debian', { ...left, 'dpkg-query': DPKG('realmd', 'polkitd') }, 'leave');
    expect([bare.result, has(bare.lines, 'apt-get')]).toEqual([['guest_packages_missing', 'adcli'], false]);
  });

  test.each([
    [
      "adcli: couldn't connect to lab.test domain: Couldn't resolve host name: dc1.lab.test",
      'guest_operation_failed',
    ],
    ["adcli: couldn't find usable domain controller to connect to", 'directory_not_found'],
    ["! Couldn't authenticate as: admin@LAB.TEST: Preauthentication failed", 'directory_login_failed'],
  ])('one whose account cannot be reached stays in: %s', async (said, key) => {
    const script: Script = {
      'dpkg-query': DPKG('adcli', 'realmd', 'polkitd'),
      'realm list': 'lab.test\n',
      'uname -n': 'web1\n',
      'show-computer': failed(said),
    };
    const { result, lines } = await inGuest('debian', script, 'leave');
    expect([(result as string[])[0], has(lines, 'realm leave')]).toEqual([key, false]);
    const gone = { ...script, 'show-computer': failed('adcli: No computer account for WEB1$ exists') };
    expect(has((await inGuest('debian', gone, 'leave')).lines, 'realm leave')).toBe(true);
  });

  test('nothing is installed in one that is joined already, or has no name that a directory takes', async () => {
    const script: Script = {
      'dpkg-query': DPKG('realmd'),
      'realm list': 'other.test\n',
      'uname -n': 'web1\n',
    };
    const joined = await inGuest('debian', script, 'join');
    expect(joined.result).toEqual([
      'guest_operation_failed',
      'it is in the directory other.test; leave that first',
    ]);
    const named = await inGuest('debian', { ...script, 'uname -n': 'a-name-that-is-too-long\n' }, 'join');
    expect(named.result).toMatchObject(['invalid_field', expect.stringContaining('15')]);
    for (const { lines } of [joined, named]) expect(has(lines, 'apt-get')).toBe(false);
  });

  test('one that lacks packages is told so when they are not to be installed', async () => {
    const script: Script = { rpm: 'package adcli is not installed\npackage sssd is not installed\n' };
    const told = { ...script, 'realm list': failed('realm: not found'), 'uname -n': 'web1\n' };
    const { result, lines, effects } = await inGuest('rocky', told, 'join', { install: false });
    expect(result).toEqual(['guest_packages_missing', 'adcli, sssd']);
    expect([has(lines, 'dnf'), effects]).toEqual([false, []]);
  });

  describe('that gets another name for its join', () => {
    const DEBIAN: Script = {
      'dpkg-query': DPKG('adcli', 'realmd', 'sssd-ad', 'sssd-tools', 'libnss-sss', 'libpam-sss', 'polkitd'),
      'realm discover': 'lab.test\n',
      'uname -n': 'web1.lab.test\n',
    };
    const NAMED = { type: 'guest_name', domain: 'vm', before: 'web1.lab.test', name: 'web2.lab.test' };
    const JOINED = { type: 'guest_change', domain: 'vm', change: 'join the directory lab.test' };
    const rename = (name: string) => `hostname "$1" sh ${name}`;
    /** A guest that is in this directory, or in none, as soon as such a program has begun. */
    const afterThat = (program: string, directory: string, more: Script = {}, before = '') => {
      let current = before;
      const script = {
        ...{ ...DEBIAN, ...more },
        get 'realm list'() {
          return current;
        },
      };
      const seen = (line: string) => {
        if (line.includes(program)) current = directory;
      };
      return { script, seen };
    };
    const canceledAt = (part: string, canceler: AbortController) => ({
      computerName: 'web2',
      signal: canceler.signal,
      seen: (line: string) => line.includes(part) && canceler.abort(),
    });

    test('has its former one when it was canceled before its join began', async () => {
      const { lines, told } = await inGuest(
        'debian',
        DEBIAN,
        'join',
        canceledAt(rename('web2'), new AbortController()),
      );
      expect([has(lines, 'realm join'), lines.at(-1)]).toEqual([
        false,
        expect.stringContaining(rename('web1.lab.test')),
      ]);
      expect(told).toEqual([]);
    });

    test('keeps it when its join was broken off, which goes on in the guest, and that is told', async () => {
      const { lines, told } = await inGuest(
        'debian',
        DEBIAN,
        'join',
        canceledAt('realm join', new AbortController()),
      );
      expect(has(lines, rename('web1.lab.test'))).toBe(false);
      expect(told).toEqual([NAMED, JOINED]);
    });

    const answers = { exitCode: 0, out: '', err: '' };
    test.each([
      ['is not believed to be in afterwards', answers, 'guest_operation_failed'],
      ['was ended by a signal', { ...answers, exitCode: null }, 'guest_operation_failed'],
      [
        'takes too long',
        new VirtkeepError('guest_command_timed_out', { domain: 'vm', command: 'realm', seconds: 600 }),
        'guest_command_timed_out',
      ],
      [
        'is not known to its agent, which was started anew',
        new VirtkeepError('guest_process_unknown', { domain: 'vm', pid: 7 }),
        'guest_process_unknown',
      ],
    ])('keeps it when its join may stand: it %s', async (_what, answer, key) => {
      const script = { ...DEBIAN, 'realm join': answer };
      const { result, lines, told } = await inGuest('debian', script, 'join', { computerName: 'web2' });
      expect([(result as string[])[0], has(lines, rename('web1.lab.test'))]).toEqual([key, false]);
      expect(told).toEqual([NAMED, JOINED]);
    });

    test('keeps it when its join failed in its last part alone', async () => {
      const { script, seen } = afterThat('realm join', 'lab.test\n', {
        'realm join': failed('Job for sssd.service failed'),
      });
      const { lines, told } = await inGuest('debian', script, 'join', { computerName: 'web2', seen });
      expect([has(lines, rename('web1.lab.test')), told]).toEqual([false, [NAMED, JOINED]]);
    });

    test('has its former one when the directory refuses it; one that does not take it back is told', async () => {
      const refused = { ...DEBIAN, 'realm join': failed('something else') };
      const back = await inGuest('debian', refused, 'join', { computerName: 'web2' });
      expect([back.lines.at(-1), back.told]).toEqual([expect.stringContaining(rename('web1.lab.test')), []]);
      const stuck = { ...refused, [rename('web1.lab.test')]: failed('no') };
      const { told } = await inGuest('debian', stuck, 'join', { computerName: 'web2' });
      expect(told).toEqual([NAMED]);
    });

    test('has its former one when its agent did not begin the join', async () => {
      const busy = new VirtkeepError('guest_agent_busy', { domain: 'vm', command: 'guest-exec' });
      const { lines, told } = await inGuest('debian', { ...DEBIAN, 'realm join': busy }, 'join', {
        computerName: 'web2',
      });
      expect([lines.at(-1), told]).toEqual([expect.stringContaining(rename('web1.lab.test')), []]);
    });

    test.each(['join', 'leave'] as const)(
      'a cancel of its restart after a %s tells of what stands',
      async work => {
        const canceler = new AbortController();
        const guest =
          work === 'join'
            ? afterThat('realm join', 'lab.test\n', { boot_id: 'first\n' })
            : afterThat('realm leave', '', { boot_id: 'first\n' }, 'lab.test\n');
        const seen = (line: string) => {
          guest.seen(line);
          if (line === 'guest-shutdown') canceler.abort(new VirtkeepError('canceled'));
        };
        const wish = { computerName: 'web2', restart: true, signal: canceler.signal, seen };
        const { result, told } = await inGuest('debian', guest.script, work, wish);
        expect((result as string[])[0]).toBe('canceled');
        expect(told).toEqual(
          work === 'join'
            ? [NAMED, JOINED]
            : [{ type: 'guest_change', domain: 'vm', change: 'leave its directory' }],
        );
      },
    );

    test('nothing is left to be told when its join is committed', async () => {
      const { script, seen } = afterThat('realm join', 'lab.test\n');
      const { result, told } = await inGuest('debian', script, 'join', { computerName: 'web2', seen });
      expect([result, told]).toEqual([expect.objectContaining({ $case: 'joinDirectory' }), []]);
    });
  });
});
