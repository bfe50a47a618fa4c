/** What a browser may load and run for an answer: nothing, but for the pages and for the API document's. Pure. */

/** Answers of the API are no pages. */
const NOTHING = policy({ 'default-src': "'none'", 'base-uri': "'none'", 'frame-ancestors': "'none'" });

/** The management pages: own files only, none of them inline, and no text becomes script or markup (Trusted Types). */
const PAGES = policy({
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self'",
  'font-src': "'self'",
  'connect-src': "'self'",
  'manifest-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'self'",
  'frame-ancestors': "'none'",
  'require-trusted-types-for': "'script'",
  'trusted-types': "'none'",
});

/** The browsable API document sets styles in its markup, and brings pictures along. */
const DOCUMENT = policy({
  'default-src': "'self'",
  'base-uri': "'self'",
  'font-src': "'self' data:",
  'form-action': "'self'",
  'frame-ancestors': "'self'",
  'img-src': "'self' data:",
  'object-src': "'none'",
  'script-src': "'self'",
  'script-src-attr': "'none'",
  'style-src': "'self' 'unsafe-inline'",
});

function policy(directives: Readonly<Record<string, string>>): string {
  return Object.entries(directives)
    .map(([name, sources]) => `${name} ${sources}`)
    .join(';');
}

/** The policy of whatever is answered at this address. */
export function contentPolicy(url: string): string {
  const path = url.split('?', 1)[0]!;
  if (isBelow(path, '/ui')) return PAGES;
  return isBelow(path, '/api/docs') ? DOCUMENT : NOTHING;
}

function isBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`);
}
