import { expect, test } from '@jest/globals';
import { contentPolicy } from './content-policy.ts';

test('answers of the API load and run nothing', () => {
  for (const url of ['/api/domains/', '/ui-of-others', '/uix/', '/api/docsy', '/', '/api/domains/?a=/ui/'])
    expect(contentPolicy(url)).toBe("default-src 'none';base-uri 'none';frame-ancestors 'none'");
});

test('the pages run their own files only, and make no markup of text', () => {
  for (const url of ['/ui', '/ui/', '/ui/vms?x=1', '/ui/assets/index.js']) {
    const policy = contentPolicy(url);
    expect(policy).toContain("require-trusted-types-for 'script';trusted-types 'none'");
    expect(policy).not.toMatch(/unsafe|data:|https?:|\*/);
  }
});

test('styles in markup are for the API document alone', () => {
  for (const url of ['/api/docs', '/api/docs/', '/api/docs/static/index.css'])
    expect(contentPolicy(url)).toContain("style-src 'self' 'unsafe-inline'");
});
