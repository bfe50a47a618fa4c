import { expect, test } from '@jest/globals';
import { startRestored } from './start.ts';

test('libvirt resumes with the definition that was judged, whatever stands in the memory file by then', async () => {
  const asked: unknown[] = [];
  const restoreDomain = async (path: string, xml: string | null) => void asked.push({ path, xml });
  const [dependencies, context, domain] = [
    { libvirt: () => ({ restoreDomain }) },
    { signal: new AbortController().signal },
    {},
  ] as unknown as Parameters<typeof startRestored>;
  const resume = { path: '/pool/exchanged.memory', xml: '<domain><name>judged</name></domain>' };
  expect(await startRestored(dependencies, context, domain, { resume, startOn: true })).toBe(true);
  expect(asked).toEqual([resume]);
});
