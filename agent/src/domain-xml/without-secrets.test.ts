import { expect, test } from '@jest/globals';
import { LIVE_XML } from './sample-xml.ts';
import { withoutSecrets } from './without-secrets.ts';

const UUID = '11111111-2222-4333-8444-555555555555';

test.each([
  ["<graphics type='vnc' passwd='s3cr3t'/>"],
  ["<graphics type='spice' passwd='s3cr3t'><listen type='none'/></graphics>"],
  [`<disk><auth username='s3cr3t'><secret type='ceph' uuid='${UUID}'/></auth><target dev='vda'/></disk>`],
  [`<disk><source><auth username='s3cr3t'><secret usage='u'/></auth></source><target dev='vda'/></disk>`],
  [
    "<disk><source protocol='https' name='a' query='t=s3cr3t'><host name='h'/></source><target dev='vda'/></disk>",
  ],
  ["<disk><source protocol='https' name='a?t=s3cr3t'/><target dev='vda'/></disk>"],
  ["<disk><backingStore><source protocol='https' name='https://me:s3cr3t@h/a'/></backingStore></disk>"],
  ["<disk><source><cookies><cookie name='id'>s3cr3t</cookie></cookies></source><target dev='vda'/></disk>"],
])('shown without: %s', devices => {
  const shown = withoutSecrets(`<domain><name>vm</name><devices>${devices}</devices></domain>`);
  expect(shown).not.toContain('s3cr3t');
});

test.each([
  [
    "<x:commandline xmlns:x='http://libvirt.org/schemas/domain/qemu/1.0'><x:arg value='-object'/><x:arg value='secret,id=a,data=s3cr3t'/><x:env name='A' value='s3cr3t'/></x:commandline>",
  ],
  ["<sysinfo type='smbios'><oemStrings><entry>io.systemd.credential:a=s3cr3t</entry></oemStrings></sysinfo>"],
  ["<sysinfo type='fwcfg'><entry name='opt/root-password'>s3cr3t</entry></sysinfo>"],
  ["<sysinfo type='fwcfg'><entry name='opt/com.coreos/config'>{}s3cr3t</entry></sysinfo>"],
  [
    "<sysinfo type='smbios'><system><entry name='serial'>ds=nocloud;s=http://h/?t=s3cr3t</entry></system></sysinfo>",
  ],
  ['<os><cmdline>ds=nocloud;s=http://me:s3cr3t@h/ ip=http://h/a?t=s3cr3t</cmdline></os>'],
  ['<os><cmdline>console=ttyS0 root.password=s3cr3t quiet</cmdline></os>'],
  ["<launchSecurity type='sev'><session>s3cr3t</session></launchSecurity>"],
  [
    "<metadata><c:data xmlns:c='https://github.com/cockpit-project/cockpit'><c:root_password>s3cr3t</c:root_password></c:data></metadata>",
  ],
  [
    "<metadata><data xmlns='urn:x'><user_password>s3cr3t<text>s3cr3t</text></user_password></data></metadata>",
  ],
  ["<metadata><x:token xmlns:x='urn:x' value='s3cr3t'/></metadata>"],
  ["<metadata><x:login xmlns:x='urn:x' api-token='s3cr3t' x:user-secret='s3cr3t'/></metadata>"],
])('shown without: %s', part => {
  expect(withoutSecrets(`<domain><name>vm</name>${part}</domain>`)).not.toContain('s3cr3t');
});

test('where a secret lies, and what is before it, is shown', () => {
  const shown = withoutSecrets(
    "<domain><name>vm</name><sysinfo type='fwcfg'><entry name='opt/a' file='/a.ign'/><entry name='opt/b'>s</entry></sysinfo><devices><disk><source protocol='https' name='d/a.iso?t=s'/></disk></devices></domain>",
  );
  expect(shown).toContain('<entry name="opt/a" file="/a.ign"/><entry name="opt/b">hidden</entry>');
  expect(shown).toContain('name="d/a.iso?hidden"');
});

test('what other programs keep is shown where it names no secret, and our own as it is', () => {
  const metadata =
    "<metadata><token:data xmlns:token='urn:t' monkey='1'><token:keyboard>de</token:keyboard></token:data><virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' states-deleted='2026-01-01T00:00:00.000Z'><virtkeep:loose-layer target='vda' path='/p/secret.qcow2'/></virtkeep:domain></metadata>";
  const xml = `<domain><name>vm</name>${metadata}</domain>`;
  expect(withoutSecrets(xml)).toBe(xml);
});

test('all else is shown as it is, the id of a secret included', () => {
  const shown = withoutSecrets(LIVE_XML);
  expect(shown).toContain(`<secret type="ceph" uuid="${UUID}"/>`);
  expect(shown).toContain('<qemu:arg value="hidden"/>');
  const cmdline =
    "<domain type='kvm'>\n <name>vm</name><os><cmdline>console=ttyS0 keymap=de </cmdline></os></domain>\n";
  expect(withoutSecrets(cmdline)).toBe(cmdline);
});
