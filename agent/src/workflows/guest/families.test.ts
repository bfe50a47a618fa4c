import { describe, expect, test } from '@jest/globals';
import { FAMILIES, familyOf, requireFamily, unitPath, unitText } from './families.ts';
import { failureText, type Guest, type Program, type ProgramResult } from './guest.ts';
import { requireUnit } from './names.ts';
import { missingPackages } from './packages.ts';

const answer = (out: string, exitCode = 0, err = ''): ProgramResult => ({ exitCode, out, err });
const by = (id: string) => FAMILIES.find(family => family.id === id)!;
const line = ({ path, args }: Program) => [path, ...args].join(' ');
const unit = requireUnit('ou', 'OU=Web,OU=Hosts,DC=lab,DC=test');
const wish = { directory: 'lab.test', login: 'Administrator', password: 'S3cret!', computer: 'WEB1', unit };

function guestOf(
  os: Record<string, string>,
  run: (program: Program) => ProgramResult = () => answer(''),
): Guest {
  return {
    name: 'vm',
    osInfo: async () => os,
    run: async program => run(program),
    command: async () => ({}),
    sshKeys: async () => [],
  };
}

describe('which family', () => {
  test.each([
    ['rhel', 'redhat'],
    ['rocky', 'redhat'],
    ['redos', 'redhat'],
    ['rosa', 'redhat'],
    ['altlinux', 'alt'],
    ['astra', 'astra'],
    ['debian', 'debian'],
    ['ubuntu', 'debian'],
  ])('%s is of %s', (id, family) => expect(familyOf(id, '')?.id).toBe(family));

  test('one that is unknown says what it is like', async () => {
    const guest = guestOf({ id: 'oraclelinux-derivate' }, () => answer('fedora rhel'));
    expect((await requireFamily(guest, 'joining')).id).toBe('redhat');
    expect(familyOf('mint', 'ubuntu debian')?.id).toBe('debian');
    expect(familyOf('astra', 'debian')?.id).toBe('astra');
  });

  test('no id belongs to two families', () => {
    const ids = FAMILIES.flatMap(({ osIds }) => osIds);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('another system is named', async () => {
    const guest = guestOf({ id: 'gentoo', prettyName: 'Gentoo Linux' });
    await expect(requireFamily(guest, 'joining')).rejects.toMatchObject({
      msgKey: 'guest_os_unsupported',
      params: { os: 'Gentoo Linux', domain: 'vm' },
    });
  });
});

describe('packages', () => {
  test('the lists of the specification', () => {
    expect(by('redhat').packages).toEqual([
      'adcli', 'realmd', 'sssd', 'krb5-workstation', 'krb5-libs', 'oddjob', 'oddjob-mkhomedir', 'samba-common-tools',
    ]); // biome-ignore format: as there
    expect(by('alt').packages).toEqual(['task-auth-ad-sssd']);
    expect(by('astra').packages).toEqual(['ssh', 'astra-ad-sssd-client']);
  });

  const missing = (id: string, answered: ProgramResult) =>
    missingPackages(
      guestOf({}, () => answered),
      by(id).manager,
      by(id).packages,
    );

  test('rpm names what is missing', async () => {
    const out =
      'adcli-0.9.2-1.el9.x86_64\nrealmd-0.17\npackage sssd is not installed\nkrb5-workstation-1\nkrb5-libs-1\noddjob-1\npackage oddjob-mkhomedir is not installed\nsamba-common-tools-4\n';
    expect(await missing('redhat', answer(out, 2))).toEqual(['sssd', 'oddjob-mkhomedir']);
  });

  test('dpkg names those that are there; a removed one with its settings left is not', async () => {
    const out =
      'adcli installed\nrealmd config-files\nsssd-ad installed\nlibnss-sss installed\nlibpam-sss installed\npolicykit-1 installed\n';
    const said = answer(out, 1, 'dpkg-query: no packages found matching sssd-tools');
    expect(await missing('debian', said)).toEqual(['realmd', 'sssd-tools']);
    const all = by('astra').packages.map(name => `${name} installed`);
    expect(await missing('astra', answer(all.join('\n')))).toEqual([]);
  });

  test('leaving needs no more than joining, and the one that does it at least', () => {
    for (const { packages, leavePackages } of FAMILIES)
      expect(leavePackages.filter(name => !packages.includes(name))).toEqual([]);
    expect(by('redhat').leavePackages).toEqual(['adcli', 'realmd']);
    expect(by('astra').leavePackages).toEqual(['astra-ad-sssd-client']);
  });

  test('no program but those of its own list is needed to prove a join', () => {
    for (const family of FAMILIES) {
      const programs = [family.proof(wish), family.account(wish, 'WEB1'), family.loginCheck?.(wish, 'WEB1')];
      const needsAdcli = programs.some(
        program => program && /adcli/.test(line(program)) && !/command -v adcli/.test(line(program)),
      );
      expect([family.id, needsAdcli]).toEqual([family.id, family.packages.includes('adcli')]);
      for (const program of programs) expect(program ? line(program) : '').not.toContain('S3cret!');
    }
  });
});

describe('commands', () => {
  test('no password stands in the arguments of any', () => {
    for (const family of FAMILIES)
      for (const program of [family.join(wish), family.leave(wish)]) {
        expect(line(program)).not.toContain('S3cret!');
        expect(program.input).toBe('S3cret!\n');
      }
  });

  test('realmd is given unit and name', () => {
    expect(line(by('redhat').join(wish))).toBe(
      '/usr/bin/env LC_ALL=C realm join --verbose --unattended --user=Administrator --computer-name=WEB1 --computer-ou=OU=Web,OU=Hosts,DC=lab,DC=test lab.test',
    );
    expect(line(by('debian').join({ ...wish, unit: [] }))).not.toContain('computer-ou');
    expect(line(by('debian').leave(wish))).toContain(
      'sh --verbose --unattended --remove --user=Administrator lab.test',
    );
  });

  test('Alt and Astra have their own', () => {
    const joining = by('alt').join(wish);
    expect(joining.args.slice(-6)).toEqual([
      'sh',
      'lab.test',
      'WEB1',
      'LAB',
      'Administrator',
      '--createcomputer=Hosts/Web',
    ]);
    expect(line(by('astra').join(wish))).toContain('astra-ad-sssd-client -d lab.test -u Administrator -y');
    expect(by('astra').takesUnit).toBe(false);
  });

  test('what directory a guest is in', () => {
    expect(by('redhat').directoryIn(answer('lab.test\n'))).toBe('lab.test');
    expect(by('redhat').directoryIn(answer(''))).toBeNull();
    expect(by('alt').directoryIn(answer('ad LAB.TEST host LAB\n'))).toBe('LAB.TEST');
    expect(by('alt').directoryIn(answer('local\n'))).toBeNull();
    const { directoryIn } = by('astra');
    expect(directoryIn(answer('Domain: lab.test\nstate: on\n'))).toBe('lab.test');
    expect(directoryIn(answer('no domain\nИмя домена = LAB.test'))).toBe('LAB.test');
    expect(directoryIn(answer('domain_name:\n  lab.test'))).toBe('lab.test');
    expect(directoryIn(answer('Domain: none.\n'))).toBeNull();
    const longest = `${'a.'.repeat(126)}b`;
    expect(directoryIn(answer(`domain=${longest}`))).toBe(longest);
    expect(directoryIn(answer(`domain=${longest}b`))).toBeNull();
  });

  test.each(['domain:', 'domain: ', `domain${':'.repeat(64)}`, 'domain:.', 'domain:\n\t'])(
    'a guest that says nothing but %j is soon heard out',
    words => expect(by('astra').directoryIn(answer(words.repeat(40_000)))).toBeNull(),
  );

  test('a unit as LDAP and as net ads writes it', () => {
    const strange = requireUnit('ou', 'OU=A\\, B,OU=C/D,DC=lab');
    expect(unitText(strange)).toBe('OU=A\\, B,OU=C/D,DC=lab');
    expect(unitPath(strange)).toBe('C\\/D/A, B');
  });
});

test('a failure is told in one line, without secrets', () => {
  expect(failureText(answer('', 1, ' one\n\n two S3cret! \n'), 'S3cret!\n')).toBe('one; two ***');
  expect(failureText(answer('', 3))).toBe('exit code 3');
  expect(failureText({ exitCode: null, out: '', err: '' })).toBe('it was ended by a signal');
});
