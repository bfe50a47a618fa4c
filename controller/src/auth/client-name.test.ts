import { expect, test } from '@jest/globals';
import { clientName } from './client-name.ts';

const CHROME =
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36';

test.each([
  ['Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0', 'Firefox 145, Linux'],
  [CHROME, 'Chrome 142, Linux'],
  [CHROME.replace('Chrome', 'HeadlessChrome'), 'Chrome 142, Linux'],
  [
    `${CHROME.replace('X11; Linux x86_64', 'Windows NT 10.0; Win64; x64')} Edg/142.0.0.0`,
    'Edge 142, Windows',
  ],
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1',
    'Safari 26, iOS',
  ],
  ['curl/8.14.1', 'curl/8.14.1'],
  ['python-requests/2.32 of somebody', 'python-requests/2.32'],
  ['virtkeep', 'virtkeep'],
  ['', ''],
  [`\u202e${'x'.repeat(200)}`, 'x'.repeat(60)],
])('%s is called %s', (agent, name) => {
  expect(clientName(agent)).toBe(name);
});

test('a header of any length is read in no time', () => {
  expect(clientName(`Version/${'1'.repeat(16_000)}`)).toBe(`Version/${'1'.repeat(52)}`);
});
