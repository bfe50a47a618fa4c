/**
 * Calls that clients of the API family know by another name: the one table of them. A call by its other name is the same call, with the
 * same rights, idempotency and audit. `api.other_names: false` switches them all off.
 */

/** Below `/api/domains/<id>/`: the other name, and the name here. */
export const OTHER_NAMES: Readonly<Record<string, string>> = {
  'vdi-prepare': 'prepare',
  'attach-veil-utils-iso': 'attach-guest-tools-iso',
  'detach-veil-utils-iso': 'detach-guest-tools-iso',
};

const ACTION_OF_DOMAIN = /^(\/api\/domains\/[^/?]+\/)([^/?]+)(\/?(?:\?.*)?)$/;

/** The address by the name that is served here. */
export function knownUrl(url: string): string {
  const [, domain, action = '', rest] = ACTION_OF_DOMAIN.exec(url) ?? [];
  return Object.hasOwn(OTHER_NAMES, action) ? `${domain}${OTHER_NAMES[action]}${rest}` : url;
}
