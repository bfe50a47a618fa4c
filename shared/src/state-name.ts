/**
 * The longest name of a new saved state, in bytes of UTF-8. libvirt keeps it in a file of that name with `.xml`, and while it is written
 * `.xml.new`, behind it: a file name has 255 bytes.
 */
export const MAX_STATE_NAME_BYTES = 255 - '.xml.new'.length;
