import { expect, test } from '@jest/globals';
import { mentionedIn } from './mentioned.ts';

test('all paths of a definition that cannot be read are found, and its volumes', () => {
  const xml = `<domain><a><source file='/p/a&amp;b &#x27;c&#39;.qcow2'/>
    <source pool='one' volume='v&lt;1'/><source dev="/dev//sda"/>
    <nvram template='/x'>
      /nv/vars.fd
    </nvram><name>no/path</name>`;
  expect(mentionedIn(xml)).toEqual({
    paths: ["/p/a&b 'c'.qcow2", '/dev/sda', '/x', '/nv/vars.fd'],
    volumes: [{ pool: 'one', volume: 'v<1' }],
  });
});

test('references to no character are left as they are', () => {
  expect(mentionedIn("<a b='/x&#xffffff;&what;'/>").paths).toEqual(['/x&#xffffff;&what;']);
});
