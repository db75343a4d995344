/* When iterations stop: the rule of `Progress` in chonn_ops/network/solve/torch.py, for one network. */

struct progress {
    double term, ratio; /* of the last iteration; at first INFINITY and 0 */
};

/* Returns what is compared with the tolerance after an iteration, from |r|^2, |s|^2, max |alpha p| and
 * max |v|. */
static double deviation(struct progress *last, double squares, double sources, double term,
                        double largest) {
    const double ratio = last->term > 0 ? term / last->term : 0;
    double q = ratio > last->ratio ? ratio : last->ratio;
    q = q < NETWORK_RATIO_LEAST ? NETWORK_RATIO_LEAST : q > NETWORK_RATIO_MOST ? NETWORK_RATIO_MOST : q;
    last->term = term, last->ratio = ratio;
    const double residual = sqrt(squares / sources);
    const double error = term * q / ((1 - q) * NETWORK_ERROR_ALLOWED * largest);
    if (squares == 0) return 0;
    return residual > error || isnan(residual) ? residual : error; /* a NaN of either stays */
}
