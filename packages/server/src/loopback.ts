/** Whether an IP address, or a host as in a URL or a Host header without the port, is this machine. */
export function isLoopback(host: string): boolean {
  return /^(?:localhost|::1|\[::1\]|(?:::ffff:)?127(?:\.\d{1,3}){3})$/.test(host);
}
