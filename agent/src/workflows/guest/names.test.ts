import { describe, expect, test } from '@jest/globals';
import {
  requireComputerName,
  requireDnsName,
  requireHostname,
  requireLogin,
  requirePassword,
  requireUnit,
  requireUser,
} from './names.ts';

const refused = (work: () => unknown) => {
  try {
    work();
  } catch (error) {
    return (error as { msgKey: string }).msgKey;
  }
  return 'taken';
};

describe('host names', () => {
  test.each(['web1', 'WEB-1', 'a', 'web1.example.com', '1and1', `${'a'.repeat(63)}`])('%s is one', name => {
    expect(requireHostname('hostname', name)).toBe(name);
  });

  test.each([
    '',
    '-web',
    'web-',
    'we b',
    'web_1',
    'web..com',
    '.com',
    'web.',
    'ж',
    'a;b',
    '$(id)',
    '-x',
    '10.0.0.1',
    '12',
  ])('%j is none', name => expect(refused(() => requireHostname('hostname', name))).toBe('invalid_field'));

  test('Linux takes 64 characters, DNS 253', () => {
    const long = ['a'.repeat(60), 'b'.repeat(60)].join('.');
    expect(refused(() => requireHostname('hostname', long))).toBe('invalid_field');
    expect(requireDnsName('directory', long)).toBe(long);
    expect(refused(() => requireHostname('hostname', 'a'.repeat(64)))).toBe('invalid_field');
  });

  test('a computer name has 15 characters and no dot', () => {
    expect(requireComputerName('hostname', 'ABCDEFGHIJKLMNO')).toBe('ABCDEFGHIJKLMNO');
    for (const name of ['ABCDEFGHIJKLMNOP', 'web.example', '12345', ''])
      expect(refused(() => requireComputerName('hostname', name))).toBe('invalid_field');
  });
});

describe('organizational units', () => {
  test('are full distinguished names, innermost part first', () => {
    expect(requireUnit('ou', 'OU=Web Servers, ou=Hosts,DC=lab,dc=test')).toEqual([
      { type: 'OU', value: 'Web Servers' },
      { type: 'OU', value: 'Hosts' },
      { type: 'DC', value: 'lab' },
      { type: 'DC', value: 'test' },
    ]);
  });

  test('may have escaped characters', () => {
    expect(requireUnit('ou', 'OU=A\\, B\\\\,DC=lab')[0]).toEqual({ type: 'OU', value: 'A\\, B\\\\' });
  });

  test.each([
    '',
    'Servers',
    'OU=Servers',
    'DC=lab,DC=test',
    'OU=,DC=lab',
    'OU=a,DC=lab,OU=b',
    'X=a,DC=lab',
    'OU=a\n,DC=lab',
    'OU=a;b,DC=lab',
    'OU=a,,DC=lab',
  ])('%j is none', name => expect(refused(() => requireUnit('ou', name))).toBe('invalid_field'));
});

test('logins, passwords and users', () => {
  for (const login of ['Administrator', 'a@lab.test', 'LAB\\a b'])
    expect(requireLogin('login', login)).toBe(login);
  for (const login of ['', '-U', 'a\nb', ' a', 'a;b'])
    expect(refused(() => requireLogin('login', login))).toBe('invalid_field');
  expect(requirePassword('password', ' $(x)"\' ')).toBe(' $(x)"\' ');
  for (const password of ['', 'a\nb', 'a\0'])
    expect(refused(() => requirePassword('password', password))).toBe('invalid_field');
  expect(requireUser('user', 'root')).toBe('root');
  for (const user of ['', '-r', 'a b', '../x', 'a:b', 'x'.repeat(33)])
    expect(refused(() => requireUser('user', user))).toBe('invalid_field');
});
