/** A certificate's serial number in the one form in which serials are compared: lower-case hex without leading zeros. */
export function serialOf(text: string): string {
  return text.toLowerCase().replace(/^0+(?=.)/, '');
}
