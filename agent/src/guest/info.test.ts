import { describe, expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { parseExact } from '@virtkeep/shared/exact-json';
import { GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { addressesOf, askInfo, fileSystemsOf, systemOf, usersOf } from './info.ts';

const NETWORK = [
  { name: 'lo', 'ip-addresses': [{ 'ip-address': '127.0.0.1', 'ip-address-type': 'ipv4', prefix: 8 }] },
  {
    name: 'eth0',
    'ip-addresses': [
      { 'ip-address': '192.0.2.7', 'ip-address-type': 'ipv4', prefix: 24 },
      { 'ip-address': '169.254.3.4', 'ip-address-type': 'ipv4', prefix: 16 },
      { 'ip-address': '2001:db8::7', 'ip-address-type': 'ipv6', prefix: 64 },
      { 'ip-address': 'fe80::1', 'ip-address-type': 'ipv6', prefix: 64 },
    ],
  },
  { name: 'eth1' },
];

describe('what a guest tells', () => {
  test('addresses by which it is reached', () => {
    expect(addressesOf(NETWORK)).toEqual({ ipv4: ['192.0.2.7'], ipv6: ['2001:db8::7'] });
  });

  test('system, file systems, users', () => {
    expect(systemOf({ id: 'debian', 'version-id': '12', 'pretty-name': 'Debian 12' })).toMatchObject({
      id: 'debian', versionId: '12', prettyName: 'Debian 12', variant: '',
    }); // biome-ignore format: one record
    expect(
      fileSystemsOf([
        { name: 'vda1', mountpoint: '/', type: 'ext4', 'used-bytes': 5, 'total-bytes': 9, disk: [] },
      ]),
    ).toEqual([{ name: 'vda1', mountpoint: '/', type: 'ext4', usedBytes: 5n, totalBytes: 9n }]);
    expect(
      usersOf([
        { user: 'root', 'login-time': 1.5 },
        { user: 'x', 'login-time': 1e300 },
      ]),
    ).toEqual([
      { name: 'root', loginTime: new Date(1500) },
      { name: 'x', loginTime: undefined },
    ]);
  });

  test.each([[undefined], [null], ['text'], [7], [{ a: 1 }], [[null, 5, 'x', { 'ip-addresses': 'no' }]]])(
    '%j breaks nothing',
    answer => {
      expect(addressesOf(answer)).toEqual({ ipv4: [], ipv6: [] });
      expect(usersOf(answer)).toEqual([]);
      expect(fileSystemsOf(answer).every(({ totalBytes }) => totalBytes === 0n)).toBe(true);
      expect(() => systemOf(answer)).not.toThrow();
    },
  );

  test('is cut where it has no end', () => {
    const users = Array.from({ length: 5_000 }, () => ({ user: 'u'.repeat(5_000) }));
    expect(usersOf(users)).toHaveLength(256);
    expect(usersOf(users)[0]!.name).toHaveLength(256);
  });

  test('can be sent on, whatever it is', () => {
    const sizes = parseExact(
      '[1e300, -1, 18446744073709551616, 9007199254740993, 1.5, "9", 9223372036854775808]',
    ) as unknown[];
    const told = fileSystemsOf(sizes.map(size => ({ name: 'x', 'used-bytes': size, 'total-bytes': size })));
    const most = 2n ** 63n - 1n;
    expect(told.map(({ usedBytes }) => usedBytes)).toEqual([
      most,
      0n,
      most,
      9_007_199_254_740_993n,
      1n,
      0n,
      most,
    ]);
    const times = [1e300, 8.64e12, -5, 1_700_000_000.25, 253_402_300_799];
    const users = usersOf(times.map(time => ({ user: 'u', 'login-time': time })));
    expect(users.map(({ loginTime }) => loginTime?.toISOString())).toEqual([
      undefined,
      undefined,
      undefined,
      '2023-11-14T22:13:20.250Z',
      '9999-12-31T23:59:59.000Z',
    ]);
    const info = GuestInfo.fromPartial({ fileSystems: told, users });
    expect(GuestInfo.decode(GuestInfo.encode(info).finish()).fileSystems).toEqual(told);
  });

  test('has nothing in it that a terminal or a log would obey', () => {
    const evil = '\u001b]0;x\u0007we\u009b31mb\r\n\u202e1\ud83d';
    expect(usersOf([{ user: evil }])[0]!.name).toBe(']0;xwe31mb1');
    expect(systemOf({ 'pretty-name': 'Débian\t12 \u{1f427}' })!.prettyName).toBe('Débian12 \u{1f427}');
    expect(
      addressesOf([{ 'ip-addresses': [{ 'ip-address-type': 'ipv4', 'ip-address': evil }] }]).ipv4,
    ).toEqual([]);
  });

  test('is asked of what the agent offers only, and one failure leaves the rest', async () => {
    const answers: Record<string, unknown> = {
      'guest-info': {
        version: '7.2.0',
        supported_commands: [
          { name: 'guest-get-host-name', enabled: true },
          { name: 'guest-network-get-interfaces', enabled: true },
          { name: 'guest-get-users', enabled: false },
          { name: 'guest-get-osinfo', enabled: true },
        ],
      },
      'guest-get-host-name': { 'host-name': 'web' },
      'guest-get-osinfo': { id: 'alpine' },
    };
    const asked: string[] = [];
    const domain = {
      uuid: 'u',
      name: 'vm',
      agentCommand: async (request: string) => {
        const { execute } = JSON.parse(request) as { execute: string };
        asked.push(execute);
        if (execute in answers) return JSON.stringify({ return: answers[execute] });
        const message = `unable to execute QEMU agent command '${execute}': no network here`;
        throw Object.assign(new Error(message), { name: 'LibvirtError', is: (code: number) => code === 1 });
      },
    };
    const { isFrozen, info } = await askInfo(domain as unknown as Domain);
    expect(isFrozen).toBe(false);
    expect(info).toMatchObject({
      agentVersion: '7.2.0',
      hostname: 'web',
      ipv4: [],
      os: { id: 'alpine' },
      users: [],
    });
    expect(asked).toEqual([
      'guest-info',
      'guest-get-host-name',
      'guest-network-get-interfaces',
      'guest-get-osinfo',
    ]);
  });
});
